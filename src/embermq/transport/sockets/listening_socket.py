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
from typing import Final, final

from embermq.transport.sockets.interface import CLOSED, ByteReceiver, Watched
from embermq.transport.sockets.poll import Poll
from embermq.transport.sockets.proxy_header import ProxyHeaders
from embermq.transport.sockets.stream_socket import StreamSocket
from embermq.transport.sockets.tls_socket import Handshakes, TlsSocket

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
    """Accepts connections. `new_receiver` makes what the bytes of one are for; `is_framed`: they are WebSockets.

    With `tls` they are encrypted; `handshakes` are those of the whole server.
    """

    def __init__(
        self,
        poll: Poll,
        listening: socket.socket,
        new_receiver: Callable[[], ByteReceiver],
        handshakes: Handshakes,
        tls: ssl.SSLContext | None = None,
        is_framed: bool = False,
        retry_s: float = RETRY_S,
        headers: ProxyHeaders | None = None,
    ) -> None:
        """`listening` is this object's from now on. `headers`: all connections are of proxies, and begin with one."""
        Watched.__init__(self, listening.fileno())
        self._poll: Final = poll
        self._socket: Final = listening
        self._new_receiver: Final = new_receiver
        self._handshakes: Final = handshakes
        self._is_framed: Final = is_framed
        # Not `accept`: it makes an object, for which it asks the system for the address of this side.
        self._accept: Final[Callable[[], tuple[int, object]]] = listening._accept  # type: ignore[attr-defined]
        self._tls: Final = tls
        self._headers: Final = headers
        self._retry_s: Final = retry_s
        self._retry: asyncio.TimerHandle | None = None
        poll.add(self)

    def ready(self, events: int) -> None:
        self._poll.after_turn(self._accept_all)

    def _accept_all(self) -> None:
        for _ in range(ACCEPTED_MAX):
            if self._tls is not None and not self._handshakes.has_room():
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
            if self._headers is not None:
                self._headers.begin(descriptor, peer, self._admit_proxied)
            elif not self._is_admitted(descriptor, peer):
                return  # there was no room; connections that have ended meanwhile make some, and are looked after first

    def _admit_proxied(self, descriptor: int, peer: object) -> None:
        """The header of a proxy has come. What the client has sent is still in the kernel."""
        if self.descriptor == CLOSED:
            os.close(descriptor)
        elif self._tls is not None and not self._handshakes.has_room():
            self._poll.loop.call_later(HANDSHAKES_RETRY_S, self._admit_proxied, descriptor, peer)
        else:
            self._is_admitted(descriptor, peer)

    def _is_admitted(self, descriptor: int, peer: object) -> bool:
        """Make a connection. It counts towards all limits from now on, before anything is read or TLS begins."""
        receiver = self._new_receiver()
        stream: StreamSocket
        if self._tls is None:
            stream = StreamSocket(self._poll, descriptor, peer, receiver, self._is_framed)
        else:
            stream = TlsSocket(self._poll, descriptor, peer, receiver, self._is_framed, self._tls, self._handshakes)
        self._poll.add(stream)
        receiver.connection_made(stream)
        if stream.descriptor == CLOSED:
            return False
        if isinstance(stream, TlsSocket):
            stream.begin()
        return True

    def _wait(self, seconds: float) -> None:
        self._poll.remove(self)
        self._retry = self._poll.loop.call_later(seconds, self._listen_again)

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
        if self._headers is not None:
            self._headers.close()
