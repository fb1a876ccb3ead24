"""A socket that is listened on.

Owns: accepting connections, as many in a turn as is fair to the connections that there are.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.transport.sockets.poll import Poll
from embermq.transport.sockets.stream_socket import StreamSocket
from embermq.transport.sockets.tls_socket import TlsSocket
from embermq.transport.sockets.watched import CLOSED, Watched
from embermq.transport.stream import StreamConnection

if TYPE_CHECKING:
    from embermq.transport.server import Server
    from embermq.transport.websocket import WebSocketSettings

logger: Final = logging.getLogger("embermq")

ACCEPTED_MAX: Final = 128
"""How many connections are accepted in one turn."""
RETRY_S: Final = 1.0
"""After how long connections are accepted again when the system had no file or memory for one."""
HANDSHAKES_RETRY_S: Final = 0.05
"""After how long connections are accepted again when there were too many TLS handshakes."""
NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@final
class ListeningSocket(Watched):
    """Accepts connections for a server: plain, or over TLS, or as WebSockets, or both."""

    __slots__ = ("_accept", "_poll", "_retry", "_retry_s", "_server", "_socket", "_tls", "_websockets")

    def __init__(
        self,
        server: "Server",
        poll: Poll,
        listening: socket.socket,
        tls: ssl.SSLContext | None = None,
        websockets: "WebSocketSettings | None" = None,
        retry_s: float = RETRY_S,
    ) -> None:
        """`listening` is this object's from now on."""
        Watched.__init__(self, listening.fileno())
        self._server: Final = server
        self._poll: Final = poll
        self._socket: Final = listening
        # Not `accept`: it makes an object, for which it asks the system for the address of this side.
        self._accept: Final[Callable[[], tuple[int, object]]] = listening._accept  # type: ignore[attr-defined]
        self._tls: Final = tls
        self._websockets: Final = websockets
        self._retry_s: Final = retry_s
        self._retry: asyncio.TimerHandle | None = None
        poll.add(self)

    def ready(self, events: int) -> None:
        self._poll.after_turn(self._accept_all)

    def _accept_all(self) -> None:
        for _ in range(ACCEPTED_MAX):
            if self._tls is not None and not self._server.handshakes.has_room():
                self._wait(HANDSHAKES_RETRY_S)  # the system keeps them, up to the backlog
                return
            try:
                descriptor, peer = self._accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in NO_ROOM:
                    logger.warning("connections cannot be accepted for %g s: %s", self._retry_s, error.strerror)
                    self._wait(self._retry_s)
                    return
                continue  # that connection has failed; others may wait behind it
            os.set_blocking(descriptor, False)
            if not self._is_admitted(descriptor, peer):
                return  # there was no room; connections that have ended meanwhile make some, and are looked after first

    def _is_admitted(self, descriptor: int, peer: object) -> bool:
        """Make a connection. It counts towards all limits from now on, before anything is read or TLS begins."""
        server, poll = self._server, self._poll
        websocket = self._websockets.stream(server) if self._websockets is not None else None
        connection = StreamConnection(server) if websocket is None else websocket.connection
        stream: StreamSocket
        if self._tls is None:
            stream = StreamSocket(poll, descriptor, peer, connection, websocket)
        else:
            stream = TlsSocket(poll, descriptor, peer, connection, websocket, self._tls, server.handshakes)
        poll.add(stream)
        if websocket is not None:
            websocket.connection_made(stream)
        else:
            connection.connection_made(stream)
        if stream.descriptor == CLOSED:
            return False
        if isinstance(stream, TlsSocket):
            stream.begin()
        return True

    def _wait(self, seconds: float) -> None:
        self._poll.remove(self)
        self._retry = self._server.loop.call_later(seconds, self._listen_again)

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
