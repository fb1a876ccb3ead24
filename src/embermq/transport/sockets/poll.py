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
from typing import Final, final

from embermq.transport.sockets.interface import CLOSED, READABLE, PolledServer, Watched

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
PART_BYTES: Final = 48
"""What a part takes besides its bytes: the object, or the count of its holders."""
REFERENCE_BYTES: Final = 8


@final
class UnsentParts:
    """The parts of output that the kernel has not taken from all sockets of one poll, and how many bytes they are.

    One message to many clients is one object for all of them, and counts once.
    """

    def __init__(self) -> None:
        self._holders: Final[dict[int, int]] = {}  # by the identity of the part, which is alive while it is kept
        self.size_bytes = 0

    def add(self, part: bytes) -> None:
        """A socket keeps a part."""
        key = id(part)
        count = self._holders.get(key, 0)
        self._holders[key] = count + 1
        self.size_bytes += REFERENCE_BYTES if count else REFERENCE_BYTES + PART_BYTES + len(part)

    def remove(self, part: bytes) -> None:
        """A socket has sent a part, or has ended."""
        key = id(part)
        count = self._holders[key]
        if count > 1:
            self._holders[key] = count - 1
            self.size_bytes -= REFERENCE_BYTES
        else:
            del self._holders[key]
            self.size_bytes -= REFERENCE_BYTES + PART_BYTES + len(part)


@final
class Poll:
    """All sockets of one server that are not the event loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: Final = loop
        self._server: PolledServer | None = None
        self.epoll: Final = select.epoll()
        self.wait: Final[Callable[[float, int], list[tuple[int, int]]]] = self.epoll.poll  # seconds, how many at most
        self.unsent: Final = UnsentParts()
        self._watched: Final[dict[int, Watched]] = {}
        self._ended: list[Watched] = []  # closed; their connections are to be told
        self._after_turn: list[Callable[[], None]] = []
        self._deferred: dict[Watched, None] = {}  # they wait for this turn, before the others
        self._decoding_s = 0.0  # CPU time in this turn for clients that bring much over TLS or WebSocket
        self._is_looking = False
        self._is_telling = False  # `_tell_more` is to be called
        self._told = 0  # how many connections were told of their end in this turn
        self._read_memory: Final = [bytearray(READ_BYTES_MAX)]  # for all sockets, one after the other
        self._read_view: Final = memoryview(self._read_memory[0])

    def take(self, server: PolledServer) -> bool:
        """Whether it is this server's from now on, until `leave`. One server at a time has it."""
        if self._server is None:
            self._server = server
        return self._server is server

    def leave(self) -> None:
        """The server has ended."""
        self._server = None

    def may_rest(self) -> bool:
        """Whether sockets may be looked at a little later, all that are ready then in one turn."""
        return self._server is not None and self._server.may_rest()

    # -- what is watched ---------------------------------------------------------------------------------------------

    def add(self, watched: Watched) -> None:
        """Watch for what can be read."""
        self._watched[watched.descriptor] = watched
        self.epoll.register(watched.descriptor, READABLE)

    def change(self, descriptor: int, before: int, events: int) -> None:
        """Watch for other events; with none, stop watching, or epoll would report the end of the peer in every wait."""
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

    def ended(self, watched: Watched) -> None:
        """A socket is about to be closed: `tell_end` is called when what runs now is done."""
        del self._watched[watched.descriptor]
        self._ended.append(watched)
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

    def look_now(self) -> None:
        """Look after what is ready now."""
        self.look(self.wait(0, EVENTS_MAX))

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
            self._decoding_s = 0.0
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
        except Exception as error:  # our own bug: the other sockets are still served
            self._failed(error)
            found.abort()
        if self._ended:
            self._tell_ended()

    def is_decoding_time_used_up(self) -> bool:
        """Whether clients that bring much over TLS or WebSocket, or begin with TLS, wait for the next turn."""
        return self._decoding_s > DECODING_S

    def spent_decoding(self, took_s: float) -> None:
        """Such a client was read from."""
        self._decoding_s += took_s

    def defer(self, watched: Watched) -> None:
        """Read from this socket at the beginning of the next turn, which does not wait: the socket is readable."""
        self._deferred[watched] = None

    def _look_at_deferred(self) -> None:
        deferred = self._deferred
        self._deferred = {}
        for stream in deferred:
            if self.is_decoding_time_used_up():  # in the same order, before those of this turn
                self._deferred[stream] = None
            elif stream.descriptor != CLOSED:
                self._look_at(stream, READABLE)

    def _end_turn(self, server: PolledServer) -> None:
        try:
            server.end_held_turn()
        except Exception as error:  # our own bug: the event loop continues
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
        the will of a client cannot be refused, and delays the messages of others.
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
                self.loop.call_later(BUSY_S, self._tell_more)
            else:
                self.loop.call_soon(self._tell_more)

    def _is_disk_busy(self) -> bool:
        return self._server is not None and self._server.group_bytes() > BUSY_GROUP_BYTES

    def _failed(self, error: Exception) -> None:
        if self._server is not None:
            self._server.bug(error)


@final
class Wake(Watched):
    """Lets other threads have functions called in a turn."""

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
        for _ in range(len(calls)):  # calls that these add are made in the next turn, after the sockets
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
