"""The poll: which of the server's sockets are ready, and the turn that they make together.

Owns: the epoll, and all that is watched with it. What is ready at one time makes one turn: every socket that is ready
is read from once, then the turn ends, without a way through the event loop for each of them.
"""

import asyncio
import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from embermq.transport.sockets.stream_socket import StreamSocket
from embermq.transport.sockets.unsent import UnsentParts
from embermq.transport.sockets.watched import CLOSED, READABLE, Watched

if TYPE_CHECKING:
    from embermq.transport.server import Server

EVENTS_MAX: Final = 512
"""How many sockets are looked after in one turn; the others that are ready are in the next."""
ENDED_MAX: Final = 64
"""How many connections are told of their end in one turn; the others in the next."""
BUSY_GROUP_BYTES: Final = 1024 * 1024
BUSY_S: Final = 0.005
"""While more than this waits for the disk, one of them is told in this time."""
DECODING_S: Final = 0.01
"""How much CPU time a turn has for TLS handshakes, and for clients that bring much over TLS or WebSocket."""
READ_BYTES_MAX: Final = 256 * 1024
"""How much is read from a socket at a time at the most."""


@final
class Poll:
    """All sockets of one server that are not the event loop's."""

    __slots__ = (
        "_after_turn",
        "_deferred",
        "_ended",
        "_is_looking",
        "_is_telling",
        "_loop",
        "_read_memory",
        "_read_view",
        "_server",
        "_told",
        "_watched",
        "decoding_s",
        "epoll",
        "unsent",
        "wait",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._server: Server | None = None
        self.epoll: Final = select.epoll()
        self.wait: Final[Callable[[float, int], list[tuple[int, int]]]] = self.epoll.poll  # seconds, how many at most
        self.unsent: Final = UnsentParts()
        self._watched: Final[dict[int, Watched]] = {}
        self._ended: list[StreamSocket] = []  # closed; their connections are to be told
        self._after_turn: list[Callable[[], None]] = []
        self._deferred: dict[StreamSocket, None] = {}  # they wait for this turn, before the others
        self.decoding_s = 0.0  # CPU time in this turn for clients that bring much over TLS or WebSocket
        self._is_looking = False
        self._is_telling = False  # `_tell_more` is to be called
        self._told = 0  # how many connections were told of their end in this turn
        self._read_memory: Final = [bytearray(READ_BYTES_MAX)]  # for all sockets, one after the other
        self._read_view: Final = memoryview(self._read_memory[0])

    def take(self, server: "Server") -> bool:
        """Whether it is this server's from now on, until `leave`. One server at a time has it."""
        if self._server is None:
            self._server = server
        return self._server is server

    def leave(self) -> None:
        """The server has ended."""
        self._server = None

    def may_rest(self) -> bool:
        """Whether sockets may be looked at a little later, all that are ready then in one turn."""
        return self._server is not None and self._server.core.effects.may_rest()

    # -- what is watched ---------------------------------------------------------------------------------------------

    def add(self, watched: Watched) -> None:
        """Watch for what can be read."""
        self._watched[watched.descriptor] = watched
        self.epoll.register(watched.descriptor, READABLE)

    def change(self, descriptor: int, before: int, events: int) -> None:
        """Watch for other events. For none, it is not watched: epoll would tell of its end again and again."""
        if not events:
            self.epoll.unregister(descriptor)
        elif not before:
            self.epoll.register(descriptor, events)
        else:
            self.epoll.modify(descriptor, events)

    def remove(self, watched: Watched) -> None:
        """Watch it no more."""
        if self._watched.pop(watched.descriptor, None) is not None:
            self.epoll.unregister(watched.descriptor)

    def ended(self, stream: StreamSocket) -> None:
        """A socket is about to be closed: tell its connection, but not from within what that does now."""
        del self._watched[stream.descriptor]
        self._ended.append(stream)
        if not self._is_looking:
            self._tell_later()

    def close(self) -> None:
        """Nothing is watched any more."""
        self.epoll.close()

    def read_much(self, descriptor: int) -> bytes:
        """What there is to be read from a socket."""
        count = os.readv(descriptor, self._read_memory)
        return bytes(self._read_view[:count])

    # -- the turn ----------------------------------------------------------------------------------------------------

    def look(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Look after what is ready; returns what is not watched here."""
        others: list[tuple[int, int]] = []
        server = self._server
        watched = self._watched
        self._is_looking = True
        self._told = 0
        try:
            if server is not None:
                server.hold_turn()
            self.decoding_s = 0.0
            if self._deferred:
                self._look_at_deferred()
            for descriptor, events in ready:
                found = watched.get(descriptor)
                if found is None:
                    others.append((descriptor, events))
                else:
                    self._look_at(found, events)
        finally:  # also if the program is interrupted: it may end its server after that
            if server is not None:
                self._end_turn(server)
            self._is_looking = False
        if self._ended:
            self._tell_ended()
            self._tell_later()
        if self._after_turn:
            self._call_after_turn()
        return others

    def _look_at(self, found: Watched, events: int) -> None:
        try:
            found.ready(events)
        except Exception as error:  # our own bug: the other sockets go on
            self._failed(error)
            found.abort()
        if self._ended:
            self._tell_ended()

    def is_decoding_time_used_up(self) -> bool:
        """Whether clients that bring much over TLS or WebSocket, or begin with TLS, wait for the next turn."""
        return self.decoding_s > DECODING_S

    def defer(self, stream: StreamSocket) -> None:
        """Read from this socket at the beginning of the next turn. That comes at once: it can be read from."""
        self._deferred[stream] = None

    def _look_at_deferred(self) -> None:
        deferred = self._deferred
        self._deferred = {}
        for stream in deferred:
            if self.is_decoding_time_used_up():  # in the same order, before those of this turn
                self._deferred[stream] = None
            elif stream.descriptor != CLOSED:
                self._look_at(stream, READABLE)

    def _end_turn(self, server: "Server") -> None:
        try:
            server.end_held_turn()
        except Exception as error:  # our own bug: the event loop goes on
            self._failed(error)

    def after_turn(self, call: Callable[[], None]) -> None:
        """Call it when this turn has ended and the connections that have ended in it no longer count."""
        self._after_turn.append(call)

    def _call_after_turn(self) -> None:
        calls = self._after_turn
        self._after_turn = []
        for call in calls:
            try:
                call()
            except Exception as error:
                self._failed(error)

    def _tell_ended(self) -> None:
        """Tell connections that their sockets were closed, a bounded number in a turn: each has a session to end.

        Those of clients that leave together are told in the turns that follow, and few while much waits for the disk:
        a will is a message that nobody can hold back, and others' messages are written behind it.
        """
        left = (1 if self._is_disk_busy() else ENDED_MAX) - self._told
        if left <= 0:
            return
        ended, self._ended = self._ended[:left], self._ended[left:]
        self._told += len(ended)
        for stream in ended:
            try:
                stream.tell_end()
            except Exception as error:
                self._failed(error)

    def _tell_more(self) -> None:
        """A turn of its own for connections that have ended and were not told yet."""
        self._is_telling = False
        self._told = 0
        self._tell_ended()
        self._tell_later()

    def _tell_later(self) -> None:
        if self._ended and not self._is_telling:
            self._is_telling = True
            if self._is_disk_busy():
                self._loop.call_later(BUSY_S, self._tell_more)
            else:
                self._loop.call_soon(self._tell_more)

    def _is_disk_busy(self) -> bool:
        return self._server is not None and self._server.store.group_bytes() > BUSY_GROUP_BYTES

    def _failed(self, error: Exception) -> None:
        if self._server is not None:
            self._server.bug(error)


@final
class Wake(Watched):
    """Lets other threads have functions called in a turn."""

    __slots__ = ("_calls", "_is_woken")

    def __init__(self) -> None:
        Watched.__init__(self, os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        self._calls: Final[deque[Callable[[], None]]] = deque()
        self._is_woken = False

    def call(self, function: Callable[[], None]) -> None:
        """Have a function called. From any thread."""
        if self.descriptor == CLOSED:
            return
        self._calls.append(function)
        if not self._is_woken:
            self._wake()

    def _wake(self) -> None:
        self._is_woken = True
        with suppress(OSError):  # it was closed meanwhile
            os.eventfd_write(self.descriptor, 1)

    def ready(self, events: int) -> None:
        os.eventfd_read(self.descriptor)
        self._is_woken = False  # before the calls are taken: one that comes meanwhile wakes again
        calls = self._calls
        for _ in range(len(calls)):  # not those that these call for in their turn: the sockets come first
            try:
                calls.popleft()()
            except Exception:
                if calls:  # they come in the next turn
                    self._wake()
                raise

    def close(self) -> None:
        """Nothing is called any more."""
        descriptor = self.descriptor
        self.descriptor = CLOSED  # first: another thread must not write to what has this number next
        if descriptor != CLOSED:
            os.close(descriptor)
