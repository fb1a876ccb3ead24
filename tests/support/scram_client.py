"""The client's side of SCRAM-SHA-256, written from RFC 5802 and RFC 7677 without the server's module."""

import hmac
from base64 import b64decode, b64encode
from hashlib import pbkdf2_hmac, sha256


def saslname(user_name: str) -> bytes:
    return user_name.replace("=", "=3D").replace(",", "=2C").encode()


class ScramClient:
    """One exchange. The caller gives names and passwords that SASLprep leaves as they are."""

    def __init__(self, user_name: str, password: str, nonce: str = "fyko+d2lbbFgONRv", gs2: str = "n,,") -> None:
        self.gs2 = gs2.encode()
        self.password = password
        self.nonce = nonce.encode()
        self.first_bare = b"n=" + saslname(user_name) + b",r=" + self.nonce
        self.first = self.gs2 + self.first_bare
        self.server_signature = b""

    def final(self, server_first: bytes) -> bytes:
        """The client-final message (RFC 5802, section 3 and 5.1)."""
        fields = dict(part.split(b"=", 1) for part in server_first.split(b","))
        assert list(fields) == [b"r", b"s", b"i"]
        assert fields[b"r"].startswith(self.nonce) and len(fields[b"r"]) > len(self.nonce)
        salted = pbkdf2_hmac("sha256", self.password.encode(), b64decode(fields[b"s"]), int(fields[b"i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = b"c=" + b64encode(self.gs2) + b",r=" + fields[b"r"]
        auth_message = self.first_bare + b"," + server_first + b"," + without_proof
        signature = hmac.digest(sha256(client_key).digest(), auth_message, "sha256")
        self.server_signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), auth_message, "sha256")
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        return without_proof + b",p=" + b64encode(proof)

    def accepts(self, server_final: bytes | None) -> bool:
        """Whether the server has proved that it has the credential."""
        return server_final == b"v=" + b64encode(self.server_signature)
