"""Where an MQTT server is, and the socket to it.

Owns: the URL of a server, connecting, and TLS. Every error is a `ConfigError` with one sentence.
Never: a packet.
"""

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit

from embermq.client import URL_EXPECTED
from embermq.client.websocket import ByteStream, WebSocket
from embermq.errors import ConfigError
from embermq.transport.sockets.addresses import shown, unix_address

WS_PATH: Final = "/mqtt"
"""The path of a URL that has none."""
FLAGS: Final = ("--ca", "--cert", "--key")
"""How the options of commands name the three files of TLS."""
_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is: a host and a port, with TLS or not, or a unix socket. With a `ws_path` it is a WebSocket.

    `file_names`: how its user names the authority, the certificate and the key, for sentences about them.
    """

    host: str = ""
    port: int = 0
    tls: bool = False
    unix_path: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    ws_path: str = ""
    file_names: tuple[str, str, str] = FLAGS

    def __str__(self) -> str:
        if self.unix_path is not None:
            return str(self.unix_path)
        scheme = "ws" if self.ws_path else "mqtt"
        return f"{scheme}{'s' if self.tls else ''}://{shown(self.host, self.port)}{self.ws_path}"

    def check_files(self) -> None:
        """A `ConfigError` names a file of TLS that is not there."""
        for name, path in zip(self.file_names, (self.ca, self.certificate, self.key), strict=True):
            if path is not None and not path.is_file():
                raise ConfigError(f"{name} {path}: there is no such file")


def address_of_url(
    url: str, ca: Path | None, certificate: Path | None, key: Path | None, file_names: tuple[str, str, str] = FLAGS
) -> tuple[ServerAddress, str | None, bool]:
    """The address that a URL names, the user name in it, and whether it has a password. ValueError if it is no URL."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return ServerAddress(unix_path=Path(unquote(parts.path))), None, False
    is_websocket = parts.scheme in ("ws", "wss")
    is_plain = is_websocket or (parts.path in ("", "/") and not parts.query)
    if not host or parts.scheme not in _PORTS or not is_plain or parts.fragment:
        raise ValueError(f"expected {URL_EXPECTED}")
    ws_path = _target(parts) if is_websocket else ""
    tls = parts.scheme in ("mqtts", "wss")
    address = ServerAddress(host, port or _PORTS[parts.scheme], tls, None, ca, certificate, key, ws_path, file_names)
    return address, unquote(parts.username) if parts.username else None, parts.password is not None


def _target(parts: SplitResult) -> str:
    """What an upgrade asks for, as ASCII."""
    query = f"?{parts.query}" if parts.query else ""
    return quote(f"{parts.path or WS_PATH}{query}", safe="/%?&=:@!$'()*+,;~")


def open_socket(address: ServerAddress, timeout_s: float) -> socket.socket:
    """A connected socket, with TLS where the address asks for it."""
    try:
        if address.unix_path is not None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with unix_address(address.unix_path) as path:
                connection.connect(path)
            return connection
        connection = socket.create_connection((address.host, address.port), timeout_s)
    except OSError as error:
        raise ConfigError(f"cannot connect to {address}: {error.strerror or error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _with_tls(connection, address) if address.tls else connection


def open_websocket(connection: ByteStream, address: ServerAddress) -> WebSocket:
    """A WebSocket over a connected socket, which is closed after an error."""
    try:
        return WebSocket(connection, str(address), shown(address.host, address.port), address.ws_path)
    except OSError as error:
        connection.close()
        raise ConfigError(f"no WebSocket to {address}: {error.strerror or error}") from None
    except ConfigError:
        connection.close()
        raise


def _with_tls(connection: socket.socket, address: ServerAddress) -> socket.socket:
    try:
        address.check_files()
    except ConfigError:
        connection.close()
        raise
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.certificate is not None:
            context.load_cert_chain(address.certificate, address.key)
        return context.wrap_socket(connection, server_hostname=address.host)
    except (OSError, ssl.SSLError) as error:
        connection.close()
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error.strerror or error
        remedy = ""
        if isinstance(error, ssl.SSLCertVerificationError) and address.ca is None:
            remedy = f"; name the authority that has signed the server's certificate with {address.file_names[0]}"
        raise ConfigError(f"no TLS connection to {address}: {reason}{remedy}") from None
