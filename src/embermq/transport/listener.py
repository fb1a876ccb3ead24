"""A listener: where clients connect, and what holds for all of them that connect there.

Owns: kind, address, limits, access rules and TLS of one listener, and how many streams it has. Each connection has a
reference to its listener. `transport.listeners` opens the sockets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, final

from embermq.broker.access import Access
from embermq.broker.limits import Limits
from embermq.protocol.sn.settings import SnSettings
from embermq.transport.mount_point import MountPoint
from embermq.transport.sockets.addresses import shown
from embermq.transport.tls import ServerTls

Kind = Literal["tcp", "tls", "ws", "wss", "unix", "udp"]
Group = tuple[str, int]
"""Address and port of a multicast group."""

SCHEMES: Final[dict[str, str]] = {
    "tcp": "mqtt",
    "tls": "mqtts",
    "ws": "ws",
    "wss": "wss",
    "unix": "unix",
    "udp": "mqtt-sn",
}


@final
@dataclass(frozen=True)
class TlsFiles:
    """What the TLS of a listener is read from."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    require_client_certificate: bool = False

    def read(self) -> ServerTls:
        """Raises `CertificateError`."""
        return ServerTls(self.certificate, self.key, self.client_ca, self.require_client_certificate)


@final
@dataclass(kw_only=True, eq=False)
class Listener:
    """One listener, with sockets between `transport.listeners.listen` and `close`.

    `path` and `mode` are those of a unix socket. The other kinds have `hosts` and `port`; until it listens, 0 is a free
    port. `tls` is of the kinds tls and wss, `ws_paths` and `ws_origins` of ws and wss, `sn` and `sn_group` of udp.
    `levels` are the protocol levels of its clients, none: all. With `proxies`, every connection comes from one of these
    addresses and begins with a header of the PROXY protocol, which says where the client is. `mount` is not of udp.
    """

    kind: Kind
    limits: Limits
    access: Access
    name: str = ""  # its kind, if there is one of each kind
    hosts: Sequence[str] = ()
    port: int = 0
    path: Path | None = None
    mode: int = 0o660
    tls_files: TlsFiles | None = None
    tls: ServerTls | None = None  # read from them before it listens
    ws_paths: Sequence[str] = ()  # none: every path
    ws_origins: Sequence[str] = ()
    levels: tuple[int, ...] = ()
    proxies: Sequence[str] = ()
    mount: MountPoint | None = None
    sn: SnSettings | None = None
    sn_group: Group | None = None
    connections: int = field(init=False)  # streams, before CONNECT too
    _closes: list[Callable[[], None]] = field(init=False, default_factory=list)  # of its sockets

    def __post_init__(self) -> None:
        self.name = self.name or self.kind
        self.connections = 0  # not by a default: a compiled object would not have it

    def is_websocket(self) -> bool:
        return self.kind in ("ws", "wss")

    def address(self) -> str:
        """As in a URL, or the path of a unix socket. Of several hosts and paths it is the first."""
        if self.path is not None:
            return str(self.path)
        return shown(self.hosts[0] if self.hosts else "", self.port) + (self.ws_paths[0] if self.ws_paths else "")

    def places(self) -> str:
        """All addresses, for people."""
        if self.path is not None:
            return str(self.path)
        return " and ".join(shown(host, self.port) for host in self.hosts)

    def url(self) -> str:
        """Where clients connect."""
        address = self.address() if self.path is None else str(self.path.absolute())
        return f"{SCHEMES[self.kind]}://{address}"

    def opened(self, close: Callable[[], None], port: int = 0) -> None:
        """It listens, on this port; `close` ends a socket of it."""
        self.port = port
        self._closes.append(close)

    def close(self) -> None:
        """Accept no more connections. Open ones stay, except those on UDP, which have no other socket."""
        closes, self._closes = self._closes, []
        for close in closes:
            close()

    def connected(self) -> None:
        """One more stream is within the limits."""
        self.connections += 1

    def disconnected(self) -> None:
        self.connections -= 1
