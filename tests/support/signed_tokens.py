"""Keys made for a test, the tokens that they sign, and the forms in which a server reads them."""

import base64
import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


class Signer:
    """A private key and its public forms."""

    def __init__(self, algorithm: str = "ES256", key_id: str = "") -> None:
        self.algorithm = algorithm
        self.key_id = key_id
        self._is_rsa = algorithm[0] in "RP"
        self.key: Any = (
            rsa.generate_private_key(65_537, 2048) if self._is_rsa else ec.generate_private_key(ec.SECP256R1())
        )

    @property
    def pem(self) -> str:
        return str(self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())

    @property
    def private_pem(self) -> str:
        return str(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())

    def jwk(self, **more: Any) -> dict[str, Any]:
        kind = RSAAlgorithm if self._is_rsa else ECAlgorithm
        found: dict[str, Any] = json.loads(kind.to_jwk(self.key.public_key()))
        return found | ({"kid": self.key_id} if self.key_id else {}) | more

    def token(self, lasts_s: float = 600, **claims: Any) -> str:
        given = {"sub": "ann", "exp": int(time.time() + lasts_s)} | claims
        header = {"kid": self.key_id} if self.key_id else None
        present = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(present, self.key, self.algorithm, headers=header)


def key_set(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": list(keys)})


def unsigned(header: object, claims: object, signature: bytes = b"") -> str:
    """A token of any two texts of JSON, or of bytes that are none."""
    parts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, claims)]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in (*parts, signature))
