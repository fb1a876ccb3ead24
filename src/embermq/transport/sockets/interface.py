"""What sockets are for the rest of the transport, and what they need of it.

Owns: the interfaces between the two. Sockets know nothing of MQTT: their bytes are for a `ByteReceiver`, and the turns
that they make are of a `PolledServer`.
"""

from abc import ABC, abstractmethod
from typing import Final, Protocol

from mypy_extensions import trait

# EPOLLIN and EPOLLOUT. Not from `select`: these modules are loaded where there is no epoll too, and constants that the
# compiler knows cost nothing.
READABLE: Final = 1
WRITABLE: Final = 4
CLOSED: Final = -1


class ByteTransport(Protocol):
    """What a connection writes to: a transport of asyncio, a socket of the server's own, or a WebSocket."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def get_extra_info(self, name: str, default: object = None) -> object: ...


class DatagramTransport(Protocol):
    """What the listener for MQTT-SN writes to."""

    def sendto(self, data: bytes, addr: tuple[str | int, ...]) -> None: ...
    def close(self) -> None: ...


@trait
class ByteReceiver:
    """What the bytes of a socket are for: the methods of `asyncio.Protocol`, without it.

    Compiled classes that derive from an interpreted one are slow.
    """

    def connection_made(self, transport: ByteTransport) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        raise NotImplementedError

    def resume_writing(self) -> None:
        """Most of what was written has left."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """Not used: what the transport has not sent is asked for after a write."""

    def eof_received(self) -> bool:
        return False  # the transport closes


class PolledServer(ABC):
    """The server whose sockets a poll looks after."""

    @abstractmethod
    def hold_turn(self) -> None:
        """All that begins now is one turn; `end_held_turn` ends it."""

    @abstractmethod
    def end_held_turn(self) -> None:
        """All sockets that were ready have been read from."""

    @abstractmethod
    def may_rest(self) -> bool:
        """Whether sockets may be looked at a little later, all that are ready then in one turn."""

    @abstractmethod
    def group_bytes(self) -> int:
        """How much waits for the disk."""

    @abstractmethod
    def bug(self, error: Exception) -> None:
        """Something raised that no peer should be able to cause."""


class Watched:
    """A socket, or another file that a poll waits for."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def ready(self, events: int) -> None:
        """It can be read from or written to, or it has failed, which reading and writing tell."""
        raise NotImplementedError

    def abort(self) -> None:
        """Our own fault kept it from being looked after: end it, if others can go on without it."""

    def tell_end(self) -> None:
        """It was closed (`Poll.ended`): tell what receives its bytes."""
