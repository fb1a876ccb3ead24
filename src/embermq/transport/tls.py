"""TLS of a listener: the server's certificate, and the authority of its clients'.

Owns: which versions of TLS are spoken, and how certificates are checked.
Never: what the name in a certificate may do; that is the access interface's.
"""

import ssl
from pathlib import Path
from typing import Final, final


class CertificateError(Exception):
    """A certificate, key or authority cannot be used; the sentence names the file."""


@final
class ServerTls(ssl.SSLContext):
    """TLS 1.2 and newer with one certificate. With `client_ca`, a certificate that a client presents is verified."""

    def __new__(cls, *_: object, **__: object) -> "ServerTls":
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(
        self, certificate: Path, key: Path, client_ca: Path | None = None, require_client_certificate: bool = False
    ) -> None:
        """Reads the files; raises `CertificateError`."""
        self._certificate: Final = certificate
        self._key: Final = key
        self.minimum_version = ssl.TLSVersion.TLSv1_2
        self.options |= (
            ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        )  # each costs memory or time that a client chooses
        self.num_tickets = 1  # one is enough to resume a session; each is made and sent in the handshake
        self.reload()
        if client_ca is not None:
            _check_readable(client_ca)
            try:
                self.load_verify_locations(client_ca)
            except ssl.SSLError as error:
                raise CertificateError(f"{client_ca} holds no PEM certificate of an authority") from error
            self.verify_mode = ssl.CERT_REQUIRED if require_client_certificate else ssl.CERT_OPTIONAL

    def reload(self) -> None:
        """Read the certificate and its key again, for the next connections: it can be renewed without a restart."""
        _check_readable(self._certificate)
        _check_readable(self._key)
        try:
            # Without a password argument, OpenSSL would ask for one on the terminal; a server must not wait for input.
            self.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                sentence = f"the key {self._key} does not belong to the certificate {self._certificate}"
            else:
                sentence = (
                    f"{self._certificate} and {self._key} are not a PEM certificate and its key without a passphrase"
                )
            raise CertificateError(sentence) from error


def common_name(certificate: object) -> str | None:
    """The common name in a client's verified certificate, as the `ssl` module gives it; None if there is none."""
    if isinstance(certificate, dict):
        for entry in certificate.get("subject", ()):
            for key, value in entry:
                if key == "commonName":
                    return str(value)
    return None


def _check_readable(path: Path) -> None:
    """OpenSSL says that some file is missing, but not which."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror or error}") from error
