"""A socket that is listened on.

Owns: accepting connections, as many in a turn as is fair to the connections that there are.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.transport.sockets.poll import Poll
from embermq.transport.sockets.stream_socket import StreamSocket
from embermq.transport.sockets.watched import CLOSED, Watched
from embermq.transport.stream import StreamConnection

if TYPE_CHECKING:
    from embermq.transport.server import Server

logger: Final = logging.getLogger("embermq")

ACCEPTED_MAX: Final = 128
"""How many connections are accepted in one turn."""
RETRY_S: Final = 1.0
"""After how long connections are accepted again when the system had no file or memory for one."""
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@final
class ListeningSocket(Watched):
    """Accepts connections for a server."""

    __slots__ = ("_accept", "_poll", "_retry", "_retry_s", "_server", "_socket")

    def __init__(self, server: "Server", poll: Poll, listening: socket.socket, retry_s: float = RETRY_S) -> None:
        """`listening` is this object's from now on."""
        Watched.__init__(self, listening.fileno())
        self._server: Final = server
        self._poll: Final = poll
        self._socket: Final = listening
        # Not `accept`: it makes an object, for which it asks the system for the address of this side.
        self._accept: Final[Callable[[], tuple[int, object]]] = listening._accept  # type: ignore[attr-defined]
        self._retry_s: Final = retry_s
        self._retry: asyncio.TimerHandle | None = None
        poll.add(self)

    def ready(self, events: int) -> None:
        self._poll.after_turn(self._accept_all)

    def _accept_all(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                descriptor, peer = self._accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in NO_ROOM:
                    self._wait(error)
                    return
                continue  # that connection has failed; others may wait behind it
            os.set_blocking(descriptor, False)
            connection = StreamConnection(self._server)
            stream = StreamSocket(self._poll, descriptor, peer, connection)
            self._poll.add(stream)
            connection.connection_made(stream)
            if stream.descriptor == CLOSED:
                return  # there was no room; connections that have ended meanwhile make some, and are looked after first

    def _wait(self, error: OSError) -> None:
        logger.warning("connections cannot be accepted for %g s: %s", self._retry_s, error.strerror)
        self._poll.remove(self)
        self._retry = self._server.loop.call_later(self._retry_s, self._listen_again)

    def _listen_again(self) -> None:
        self._retry = None
        self._poll.add(self)

    def close(self) -> None:
        """Accept no more connections."""
        if self._retry is not None:
            self._retry.cancel()
        self._poll.remove(self)  # closing is not enough: the event loop has the same socket under another descriptor
        self.descriptor = CLOSED
        self._socket.close()
