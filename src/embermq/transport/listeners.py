"""Listening: the sockets of listeners, and a connection for each client that comes by one.

Owns: how a socket of each kind is bound, and what it makes of a client.
Never: a connection. Not compiled: event loops answer with other types than asyncio's own, which compiled code checks.
"""

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from embermq.transport.listener import Listener
from embermq.transport.server import Server
from embermq.transport.sockets.interface import ByteReceiver
from embermq.transport.sockets.listening_socket import ListeningSocket
from embermq.transport.sockets.proxy_header import ProxyHeaders
from embermq.transport.stream import StreamConnection

BACKLOG: Final = 4_096
HAS_POLL: Final = hasattr(select, "epoll") and hasattr(os, "eventfd")
"""Whether the server can look after sockets itself; otherwise the event loop does."""


async def listen(server: Server, listener: Listener) -> None:
    """Open the sockets of a listener; from now on the server has it, until it stops."""
    if listener.kind == "udp":
        await _listen_udp(server, listener)
    elif listener.path is not None:
        await _listen_unix(server, listener, listener.path)
    else:
        await _listen_tcp(server, listener)
    server.listeners.append(listener)


async def _listen_tcp(server: Server, listener: Listener) -> None:
    tls = listener.tls if not HAS_POLL else None
    new_connection = _connections(server, listener)
    bound = await server.loop.create_server(
        new_connection,  # type: ignore[arg-type]  # it has the methods of a protocol, without the base
        list(listener.hosts),
        listener.port,
        ssl=tls,
        ssl_handshake_timeout=listener.limits.connect_timeout_s if tls is not None else None,
        backlog=BACKLOG,
        reuse_address=True,
        start_serving=not HAS_POLL,
    )
    _serve(server, listener, bound, new_connection)


async def _listen_unix(server: Server, listener: Listener, path: Path) -> None:
    """A socket that a dead server left behind is replaced."""
    if path.is_socket():
        if _answers(path):  # the loop would take its place without a word
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path.unlink()
    new_connection = _connections(server, listener)
    bound = await server.loop.create_unix_server(
        new_connection,  # type: ignore[arg-type]  # as above
        str(path),
        backlog=BACKLOG,
        start_serving=not HAS_POLL,
    )
    path.chmod(listener.mode)
    listener.opened(lambda: path.unlink(missing_ok=True))
    _serve(server, listener, bound, new_connection)


async def _listen_udp(server: Server, listener: Listener) -> None:
    from embermq.transport.udp import SnSocket  # not needed by most servers

    datagrams = SnSocket(server, listener)
    listener.opened(datagrams.close, await datagrams.listen(server.own_poll() if HAS_POLL else None))


def _connections(server: Server, listener: Listener) -> Callable[[], ByteReceiver]:
    """What makes the connection of a new client."""
    if not listener.is_websocket():
        return lambda: StreamConnection(server, listener)
    from embermq.transport.websocket import WebSocketStream  # few need it

    return lambda: WebSocketStream(server, listener)


def _serve(
    server: Server, listener: Listener, bound: asyncio.Server, new_connection: Callable[[], ByteReceiver]
) -> None:
    """Accept the connections of sockets that the loop has bound, unless it serves them itself."""
    address = bound.sockets[0].getsockname()
    listener.opened(bound.close, int(address[1]) if listener.path is None else 0)
    if not HAS_POLL:
        return
    poll = server.own_poll()
    for each in bound.sockets:
        accepting = socket.socket(fileno=os.dup(each.fileno()))
        accepting.setblocking(False)
        if listener.path is None:
            accepting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # for what is accepted from it
        accepting.listen(BACKLOG)
        headers = None
        if listener.proxies:
            headers = ProxyHeaders(poll, listener.proxies, listener.limits.connect_timeout_s, server.refuse_proxied)
        own = ListeningSocket(
            poll,
            accepting,
            new_connection,
            server.handshakes,
            listener.tls,
            listener.is_websocket(),
            headers=headers,
        )
        listener.opened(own.close, listener.port)


def _answers(path: Path) -> bool:
    """Whether a server listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
