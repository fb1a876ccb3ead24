"""The PROXY protocol, version 2: the address of a client behind a proxy that forwards its bytes.

Owns: reading the header that comes before the first byte of a client, and from which addresses it is believed.
Never: a byte after the header. It is read in two exact parts, so that TLS or MQTT find the rest in the kernel.

The header is 12 fixed bytes, version and command, family, a length, then addresses and other fields. With the command
LOCAL, by which proxies check that the server lives, and for families other than TCP the address stays that of the
proxy.
"""

import asyncio
import ipaddress
import os
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, final

from embermq.transport.sockets.addresses import shown_peer
from embermq.transport.sockets.interface import CLOSED, Watched
from embermq.transport.sockets.poll import Poll

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD_BYTES: Final = 16
REST_BYTES_MAX: Final = 4096
"""Of addresses and other fields; those that proxies send, a certificate's name among them, are some hundred bytes."""
WAITING_MAX: Final = 1_024
"""How many headers are waited for at a time by one listener; more connections are closed."""

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_LENGTH: Final = Struct(">H")
_PORT: Final = Struct(">H")

Peer = tuple[str, int]
Admit = Callable[[int, object], None]
"""Takes the descriptor of a connection whose header was read, and the address of the client."""


def rest_bytes(head: bytes) -> int:
    """How many bytes of a header follow its first 16; ValueError if it is none."""
    if not head.startswith(SIGNATURE):
        raise ValueError("it does not begin with a header of the PROXY protocol, version 2")
    if head[12] not in (_LOCAL, _PROXY):
        raise ValueError(f"version and command {head[12]:#04x} of the PROXY protocol are not known")
    length: int = _LENGTH.unpack_from(head, 14)[0]
    if length > REST_BYTES_MAX:
        raise ValueError(f"a header of {length} bytes is longer than {REST_BYTES_MAX}")
    return length


def client_of(head: bytes, rest: bytes) -> Peer | None:
    """The address of the client; None if it is that of the proxy. ValueError if the header is too short for it."""
    if head[12] == _LOCAL or head[13] not in (_TCP4, _TCP6):
        return None
    size = 4 if head[13] == _TCP4 else 16
    if len(rest) < 2 * size + 4:
        raise ValueError("its header of the PROXY protocol is too short for its addresses")
    port: int = _PORT.unpack_from(rest, 2 * size)[0]
    return str(ipaddress.ip_address(rest[:size])), port


@final
class ProxyHeaders:
    """The connections of proxies by one listener whose header has not come yet."""

    def __init__(
        self,
        poll: Poll,
        trusted: Sequence[str],
        timeout_s: float,
        report: Callable[[str], None],
        waiting_max: int = WAITING_MAX,
    ) -> None:
        """`trusted`: the addresses of the proxies. `report` is told why a connection was closed."""
        self._poll: Final = poll
        self._trusted: Final = [ipaddress.ip_network(each, strict=False) for each in trusted]
        self._timeout_s: Final = timeout_s
        self._report: Final = report
        self._waiting_max: Final = waiting_max
        self._waiting: Final[set[HeaderSocket]] = set()

    def begin(self, descriptor: int, peer: object, admit: Admit) -> None:
        """Wait for the header of a new connection."""
        problem = ""
        if not self._is_trusted(peer):
            problem = "it is no proxy of this listener (proxy_protocol)"
        elif len(self._waiting) >= self._waiting_max:
            problem = f"{self._waiting_max} connections of proxies have not sent their header"
        if problem:
            os.close(descriptor)
            self.refused(peer, problem)
            return
        waiting = HeaderSocket(self._poll, self, descriptor, peer, admit)
        self._waiting.add(waiting)
        self._poll.add(waiting)
        waiting.end_after(self._timeout_s)

    def _is_trusted(self, peer: object) -> bool:
        host = peer[0] if isinstance(peer, tuple) and peer else ""
        try:
            address = ipaddress.ip_address(str(host).partition("%")[0])
        except ValueError:
            return False
        if address.version == 6 and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address.version == each.version and address in each for each in self._trusted)

    def refused(self, peer: object, problem: str) -> None:
        self._report(f"a connection from {shown_peer(peer)} was closed: {problem}")

    def ended(self, waiting: "HeaderSocket") -> None:
        """Its header has come, or its connection has ended."""
        self._waiting.discard(waiting)

    def close(self) -> None:
        for waiting in list(self._waiting):
            waiting.abort()


@final
class HeaderSocket(Watched):
    """A connection of a proxy until its header was read."""

    def __init__(self, poll: Poll, headers: ProxyHeaders, descriptor: int, peer: object, admit: Admit) -> None:
        Watched.__init__(self, descriptor)
        self._poll: Final = poll
        self._headers: Final = headers
        self._peer: Final = peer
        self._admit: Final = admit
        self._head = b""
        self._rest = b""
        self._missing = HEAD_BYTES
        self._timer: asyncio.TimerHandle | None = None

    def end_after(self, seconds: float) -> None:
        self._timer = self._poll.loop.call_later(seconds, self._timed_out)

    def _timed_out(self) -> None:
        self._fail("its header of the PROXY protocol has not come in time")

    def ready(self, events: int) -> None:
        try:
            data = os.read(self.descriptor, self._missing)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:  # a proxy that looks whether the server lives
            self.abort()
            return
        self._missing -= len(data)
        try:
            if len(self._head) < HEAD_BYTES:
                self._head += data
                if self._missing:
                    return
                self._missing = rest_bytes(self._head)
            else:
                self._rest += data
            if not self._missing:
                self._complete(client_of(self._head, self._rest))
        except ValueError as error:
            self._fail(str(error))

    def _complete(self, client: Peer | None) -> None:
        descriptor = self._leave()
        peer = self._peer if client is None else client
        self._poll.after_turn(lambda: self._admit(descriptor, peer))

    def _fail(self, problem: str) -> None:
        self._headers.refused(self._peer, problem)
        self.abort()

    def abort(self) -> None:
        if self.descriptor != CLOSED:
            os.close(self._leave())

    def _leave(self) -> int:
        """Have nobody look after the descriptor, which is returned."""
        descriptor = self.descriptor
        if self._timer is not None:
            self._timer.cancel()
        self._poll.remove(self)
        self._headers.ended(self)
        self.descriptor = CLOSED
        return descriptor
