"""Certificates of an authority of one's own: for `ember init`, and for tests.

They have what Python 3.13 asks for by default (RFC 5280): basic constraints, key usage, the identifiers of both keys,
and the names of the server. Needs the package cryptography.
"""

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

THIS_MACHINE = ("127.0.0.1", "localhost")
ONE_DAY = timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


@final
class Authority:
    """Signs certificates into a directory; `certificate` is its own.

    With a `key` file the authority lasts: the key and the certificate are used again. Without one, the key is never
    written.
    """

    def __init__(
        self,
        directory: Path,
        name: str = "test authority",
        valid: timedelta = ONE_DAY,
        key: Path | None = None,
        common_name: str = "",
    ) -> None:
        self._directory = directory
        self.certificate = directory / f"{name.replace(' ', '-')}.crt"
        if key is not None and key.exists():
            self._key = _read_key(key)
            self._name = x509.load_pem_x509_certificate(self.certificate.read_bytes()).subject
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name or name)])
        own = (
            self._builder(self._name, self._key, valid)
            .add_extension(x509.BasicConstraints(True, None), True)
            .add_extension(_usage(signs_certificates=True), True)
        )
        if key is not None:
            _write_key(key, self._key)
        self.certificate.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str, hosts: Iterable[str] = THIS_MACHINE, valid: timedelta = ONE_DAY) -> Pair:
        """A certificate with this common name, good for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), key, valid)
            .add_extension(x509.BasicConstraints(False, None), True)
            .add_extension(_usage(signs_certificates=False), True)
            .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), False)
        )
        pair = Pair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        _write_key(pair.key, key)
        signed = builder.sign(self._key, hashes.SHA256())
        pair.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + valid)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), f"{path} was not written here"
    return key


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(pem)
