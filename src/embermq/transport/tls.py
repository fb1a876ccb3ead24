"""TLS: the server's certificate, and the authority of its clients'.

Owns: which versions of TLS are spoken, and how certificates are checked.
Never: what the name in a certificate may do; that is the access interface's.
"""

import ssl
from pathlib import Path


class CertificateError(Exception):
    """A certificate, key or authority cannot be used; the sentence names the file."""


def server_context(
    certificate: Path, key: Path, client_ca: Path | None = None, require_client_certificate: bool = False
) -> ssl.SSLContext:
    """TLS 1.2 and newer with this certificate. With `client_ca`, a certificate that a client presents is verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    )  # each costs memory or time that a client chooses
    context.num_tickets = 1  # one is enough to resume a session; each is made and sent in the handshake
    load_certificate(context, certificate, key)
    if client_ca is not None:
        _check_readable(client_ca)
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise CertificateError(f"{client_ca} holds no PEM certificate of an authority") from error
        context.verify_mode = ssl.CERT_REQUIRED if require_client_certificate else ssl.CERT_OPTIONAL
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Use this certificate from the next connection on: it can be renewed without a restart."""
    _check_readable(certificate)
    _check_readable(key)
    try:
        # Without a password argument, OpenSSL would ask for one on the terminal; a server must not wait for input.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"the key {key} does not belong to the certificate {certificate}") from error
        raise CertificateError(
            f"{certificate} and {key} are not a PEM certificate and its key without a passphrase"
        ) from error


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
