"""MQTT over WebSocket (3.1.1 section 6): the binary messages of a client as a byte stream.

Owns: the HTTP request that asks for a WebSocket and the answer to it, the frames, and the end of a WebSocket.
Never: a packet's meaning. Packets and WebSocket messages of a client need not begin and end together (MQTT-6.0.0-2).
"""

import base64
import binascii
import hashlib
import logging
from typing import Final, final
from urllib.parse import unquote, urlsplit

from embermq.transport.listener import Listener
from embermq.transport.rate_limited_log import http_log, shown_name
from embermq.transport.server import Server
from embermq.transport.sockets.addresses import is_loopback, shown_peer
from embermq.transport.sockets.interface import ByteReceiver, ByteTransport
from embermq.transport.stream import StreamConnection
from embermq.transport.websocket_frames import CLOSE, NORMAL, PONG, FrameReader, PacketFrames, head

# The name that clients must offer (MQTT-6.0.0-3), and the one that clients of 3.1 knew. Where both are offered the
# first is selected. A client that offers none gets none (RFC 6455, 4.2.2); one that offers others only is refused.
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
REQUEST_BYTES_MAX: Final = 16 * 1024
"""Of the request: cookies and tokens of a proxy may be long."""
CLOSE_GRACE_S: Final = 5.0
"""How long a client may take to answer the end of a WebSocket with its own."""
JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to here a copy is cheaper than a second write."""
PONG_UNSENT_MAX: Final = 64 * 1024
"""A client that leaves more unread gets no Pong."""
_ACCEPT_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
_REASONS: Final = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
}


class NotUpgraded(Exception):
    """A request that does not become a WebSocket: the status of the answer, its text, and what the log says."""

    def __init__(self, status: int, text: str, log_line: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.log_line = log_line or text


@final
class Request:
    """An HTTP request without a body (RFC 9112). Of a header field that comes twice, the values are a list."""

    def __init__(self, head: bytes) -> None:
        """`head`: all before the empty line. Raises `NotUpgraded`."""
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not first.isprintable() or not words[2].startswith("HTTP/1."):
            raise NotUpgraded(400, "not HTTP")
        if words[0] != "GET":
            raise NotUpgraded(400, "a GET request for a WebSocket is expected")
        self.target: Final = words[1]
        self._fields: Final[dict[str, str]] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            value = value.strip(" \t")
            if not colon or not name or name != name.strip() or not value.replace("\t", " ").isprintable():
                raise NotUpgraded(400, "not HTTP")
            name = name.lower()
            before = self._fields.get(name)
            self._fields[name] = value if before is None else f"{before}, {value}"

    def path(self) -> str:
        try:
            return unquote(urlsplit(self.target).path)
        except ValueError:
            raise NotUpgraded(400, "not HTTP") from None

    def field(self, name: str) -> str:
        """The value of a header field; empty if it has none."""
        return self._fields.get(name, "")

    def has_field(self, name: str) -> bool:
        return name in self._fields

    def values(self, name: str) -> list[str]:
        """Of a header field that is a list."""
        return [value.strip() for value in self.field(name).split(",") if value.strip()]


def answer(request: Request, listener: Listener) -> bytes:
    """The answer that makes a WebSocket of a connection by this listener. Raises `NotUpgraded`."""
    path = request.path()
    if listener.ws_paths and path not in listener.ws_paths:
        raise NotUpgraded(404, f"MQTT is at {' and '.join(listener.ws_paths)}", "the path is not the listener's")
    if request.has_field("origin") and not may_come_from(request.field("origin"), listener):
        origin = shown_name(request.field("origin"))
        raise NotUpgraded(
            403,
            "pages of this origin may not connect",
            f"a page of {origin} may not connect (ws_origins)",
        )
    upgrades = [value.lower() for value in request.values("upgrade")]
    connection = [value.lower() for value in request.values("connection")]
    if "websocket" not in upgrades or "upgrade" not in connection:
        raise NotUpgraded(400, "a request for a WebSocket is expected")
    if request.field("sec-websocket-version") != "13":
        raise NotUpgraded(426, "version 13 of WebSocket is expected")
    key = request.field("sec-websocket-key")
    if not _is_key(key):
        raise NotUpgraded(400, "Sec-WebSocket-Key is not 16 bytes in base64")
    accept = base64.b64encode(hashlib.sha1(key.encode() + _ACCEPT_SUFFIX, usedforsecurity=False).digest())
    selected = _selected(request.values("sec-websocket-protocol"))
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
        + accept
        + (b"\r\nSec-WebSocket-Protocol: " + selected.encode() if selected else b"")
        + b"\r\n\r\n"
    )


def _selected(offered: list[str]) -> str:
    for name in SUBPROTOCOLS:
        if name in offered:
            return name
    if offered:
        raise NotUpgraded(400, 'the subprotocol "mqtt" is not among those that are offered')
    return ""


def may_come_from(origin: str, listener: Listener) -> bool:
    """Whether scripts of a web page may connect. Only browsers are bound to it; other clients can send anything.

    `ws_origins` names the pages, "*" for all. Without it all may, but on a loopback address only pages of this machine:
    anyone's page in a browser on this machine could otherwise talk to a server that trusts the machine.
    """
    if listener.ws_origins:
        return "*" in listener.ws_origins or origin.lower() in [each.lower() for each in listener.ws_origins]
    if not all(is_loopback(host) for host in listener.hosts):
        return True
    try:
        return is_loopback(urlsplit(origin).hostname or "")
    except ValueError:  # no address at all
        return False


@final
class WebSocketStream(ByteReceiver):
    """A WebSocket: it receives the bytes of its socket, and is a `ByteTransport` for its connection.

    The connection counts towards all limits from its first byte on, and its time for a CONNECT runs from there.
    """

    def __init__(self, server: Server, listener: Listener) -> None:
        self.connection: Final = StreamConnection(server, listener)
        self._server: Final = server
        self._listener: Final = listener
        self._transport: ByteTransport | None = None
        self._request: bytes | None = b""  # what has come of it; None when it was answered
        self._frames: Final = FrameReader()
        self._packets: Final = PacketFrames()
        self._is_closing = False

    # -- from the socket ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: ByteTransport) -> None:
        self._transport = transport
        self.connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            data = self._upgrade(self._request + data)
        if not data:
            return
        frames = self._frames
        received = frames.feed(data)
        if received and not self._is_closing:
            self.connection.data_received(received)
        ping = frames.take_ping()
        if ping is not None:
            self._pong(ping)
        if frames.closed is not None:
            self._end(frames.closed[:2])
        elif frames.problem and not self._is_closing:
            http_log.log(logging.WARNING, "%s disconnected: %s", self._shown_peer(), frames.problem)
            self._server.core.counters.protocol_errors += 1
            self._end(frames.close_code.to_bytes(2, "big"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.connection.connection_lost(exc)

    def resume_writing(self) -> None:
        self.connection.resume_writing()

    def _upgrade(self, data: bytes) -> bytes:
        """Answer the request when it is complete; returns what follows it."""
        request, end, rest = data.partition(b"\r\n\r\n")
        if not end and len(data) <= REQUEST_BYTES_MAX:
            self._request = data
            return b""
        self._request = None
        transport = self._transport
        if transport is None or self._is_closing:
            return b""
        try:
            if not end or len(request) > REQUEST_BYTES_MAX:
                raise NotUpgraded(431, f"a request of more than {REQUEST_BYTES_MAX} bytes")
            transport.write(answer(Request(request), self._listener))
            return rest
        except NotUpgraded as refused:
            self._refuse(transport, request, refused)
            return b""

    def _refuse(self, transport: ByteTransport, request: bytes, refused: NotUpgraded) -> None:
        """Say why in the answer, and in the log what was asked for: the client may not show it."""
        target, offered = _asked_for(request)
        http_log.log(
            logging.WARNING,
            "a WebSocket of %s at %s with the subprotocol %s was refused: %s",
            self._shown_peer(),
            target,
            offered,
            refused.log_line,
        )
        text = f"{refused.text}\n".encode()
        version = "Sec-WebSocket-Version: 13\r\n" if refused.status == 426 else ""
        lines = (
            f"HTTP/1.1 {refused.status} {_REASONS[refused.status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(text)}\r\n{version}Connection: close\r\n\r\n"
        )
        self._is_closing = True
        transport.write(lines.encode() + text)
        transport.close()

    def _pong(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not self._is_closing and transport.get_write_buffer_size() <= PONG_UNSENT_MAX:
            transport.write(head(PONG, len(data)) + data)

    def _end(self, code: bytes) -> None:
        """The client has ended it, or broken a rule: answer with a Close, unless that was sent, and end."""
        transport = self._transport
        if transport is None:
            return
        if not self._is_closing:
            self._is_closing = True
            transport.write(head(CLOSE, len(code)) + code)
        transport.close()

    def _shown_peer(self) -> str:
        return shown_peer(self.get_extra_info("peername"))

    # -- from the connection -----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._is_closing or self._request is not None:
            return
        parts = self._packets.framed(data)
        if len(parts) == 1 or len(data) <= JOINED_BYTES_MAX or len(parts) > 4:
            transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
        else:
            for part in parts:
                transport.write(part)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """End after what was written: with a Close, which the client has some time to answer."""
        transport = self._transport
        if transport is None or self._is_closing:
            return
        self._is_closing = True
        if self._request is not None:
            transport.close()
            return
        transport.write(head(CLOSE, 2) + NORMAL.to_bytes(2, "big"))
        transport.resume_reading()
        self._server.loop.call_later(CLOSE_GRACE_S, self.abort)

    def abort(self) -> None:
        """End at once."""
        if self._transport is not None:
            self._transport.abort()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._transport.get_extra_info(name, default) if self._transport is not None else default


def _is_key(key: str) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _asked_for(request: bytes) -> tuple[str, str]:
    """The path and the subprotocols of a request that may be none, for a log line."""
    first, _, rest = request.decode("latin-1").partition("\r\n")
    words = first.split(" ")
    offered = ""
    for line in rest.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "sec-websocket-protocol":
            offered = value.strip()
    return shown_name(words[1] if len(words) > 1 else first), shown_name(offered) if offered else "(none)"
