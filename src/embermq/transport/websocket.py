"""MQTT over WebSocket (3.1.1 section 6): binary messages as a byte stream.

Owns: the HTTP listener, its connections before the upgrade, the handshake, and a transport with
the same interface as that of a TCP socket.
Never: a packet. Packets and WebSocket messages need not begin and end together (MQTT-6.0.0-2).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from embermq.broker.limits import Limits
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX
from embermq.transport.addresses import is_loopback
from embermq.transport.frame_check import FrameCheck, FrameReader
from embermq.transport.rate_limited_log import RateLimitedLog, shown_name

if TYPE_CHECKING:
    from embermq.transport.server import Server
    from embermq.transport.stream import StreamConnection

logger: Final = logging.getLogger("embermq")

# The name that clients must offer (MQTT-6.0.0-3), and the one that clients of 3.1 knew. Where both are offered the
# first is selected; where none is, the handshake is refused: a server cannot select what was not offered.
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
BACKLOG: Final = 4_096
CLOSE_GRACE_S: Final = 5.0
"""How long a client may take to answer the end of a WebSocket with its own."""
WRITE_HIGH_WATER_BYTES: Final = 64 * 1024
JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to here a copy is cheaper than a second write."""
BINARY_FINAL: Final = 0x82
FRAME_2: Final = Struct(">BBH")
FRAME_8: Final = Struct(">BBQ")
MESSAGE_SLACK_BYTES: Final = 64 * 1024
"""A WebSocket message may hold more than one packet; the largest packet and this much more is taken in one.

Before the client's CONNECT has been processed, it is the largest CONNECT and this much more."""


http_log: Final = RateLimitedLog(logger, "HTTP connections")
"""Lines of all listeners for HTTP, that of the operator included."""


class _RateLimit(logging.Filter):
    """Pass what the HTTP library logs on to `http_log`. A peer that does not speak HTTP is logged without a trace."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            http_log.log(logging.WARNING, "not HTTP from %s", *(record.args or ("a peer",)))
        else:
            http_log.log(record.levelno, "%s", record.getMessage(), error=error)
        return False


http_logger: Final = logging.getLogger("embermq.http")
http_logger.addFilter(_RateLimit())


def binary_frame_header(length: int) -> bytes:
    """The head of a whole binary message from a server (RFC 6455, 5.2): never masked, here never compressed."""
    if length < 126:
        return bytes((BINARY_FINAL, length))
    return FRAME_2.pack(BINARY_FINAL, 126, length) if length < 65_536 else FRAME_8.pack(BINARY_FINAL, 127, length)


class HttpConnection(web.RequestHandler):
    """A connection to the listener: an HTTP request, then the frames of a WebSocket.

    Until the upgrade it counts towards `connections_max` here, after it in the server, with its `StreamConnection`.
    """

    __slots__ = ("_address_key", "_is_waiting", "_listener", "_timeout", "frames")

    def __init__(self, listener: "WebSocketListener", http: web.Server) -> None:
        timeout_s = listener.limits.connect_timeout_s
        super().__init__(
            http,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # the library's own way to have none
            keepalive_timeout=timeout_s,
            lingering_time=timeout_s,
            logger=http_logger,
        )
        self.frames: FrameCheck | None = None  # since the upgrade
        self._listener: Final = listener
        self._is_waiting = False
        self._address_key = ""  # what its address counts as
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self._address_key = self._listener.server.addresses.key(self.transport.get_extra_info("peername"))
        if not self._listener.server.admit_http(self.transport, self._address_key):
            self._abort()
            return
        self._is_waiting = True
        timeout_s = self._listener.limits.connect_timeout_s
        self._timeout = asyncio.get_running_loop().call_later(timeout_s, self._abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def set_parser(self, parser: FrameReader, data_received_cb: Callable[[], None] | None = None) -> None:
        """The library's call at the upgrade: what comes from now on are frames."""
        self._wait_no_more()
        limits = self._listener.limits
        bytes_max = min(limits.packet_bytes_max, CONNECT_BYTES_MAX) + MESSAGE_SLACK_BYTES
        self.frames = FrameCheck(parser, bytes_max, self._refuse)
        super().set_parser(self.frames, data_received_cb)  # type: ignore[arg-type]  # it has the reader's methods

    def _refuse(self, problem: str) -> None:
        http_log.log(logging.WARNING, "%s disconnected: %s", self.peername, problem)
        self._listener.server.core.counters.protocol_errors += 1
        self._abort()

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _wait_no_more(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._listener.server.forget_http(self._address_key)
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


@final
class WebSocketTransport:
    """A WebSocket with the methods of an asyncio transport that `StreamConnection` uses.

    A write goes to the socket at once, as one frame, as a write to TCP does: so the socket's own buffer is all that
    waits, and the connection keeps to its output cap by it.
    """

    __slots__ = (
        "_closing",
        "_connection",
        "_frames",
        "_high_bytes",
        "_reading",
        "_request",
        "_wake",
        "_websocket",
        "_whole_bytes_max",
        "_writer",
    )

    def __init__(
        self,
        request: web.BaseRequest,
        websocket: web.WebSocketResponse,
        writer: AbstractStreamWriter,
        connection: "StreamConnection",
        frames: FrameCheck,
        whole_bytes_max: int,
    ) -> None:
        """`whole_bytes_max`: how many bytes a message may have once the client has its session."""
        self._frames: Final = frames
        self._whole_bytes_max: Final = whole_bytes_max
        self._request: Final = request
        self._websocket: Final = websocket
        self._writer: Final = writer
        self._connection: Final = connection
        self._high_bytes = WRITE_HIGH_WATER_BYTES
        self._closing = False
        self._wake: Final = asyncio.Event()
        self._reading: Final = asyncio.Event()
        self._reading.set()

    # -- for the connection --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        transport = self._request.transport
        if self._closing or not data or transport is None or transport.is_closing():
            return
        header = binary_frame_header(len(data))
        if len(data) <= JOINED_BYTES_MAX:
            transport.write(header + data)
        else:
            transport.write(header)
            transport.write(data)
        if transport.get_write_buffer_size() > self._high_bytes:
            self._wake.set()

    def get_write_buffer_size(self) -> int:
        transport = self._request.transport
        return transport.get_write_buffer_size() if transport is not None else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = WRITE_HIGH_WATER_BYTES if high is None else high
        transport = self._request.transport
        if transport is not None:
            transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()

    def close(self) -> None:
        """End after what was written."""
        self._closing = True
        self._wake.set()
        self._reading.set()

    def abort(self) -> None:
        """End at once."""
        self.close()
        transport = self._request.transport
        if transport is not None:
            transport.abort()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._request.get_extra_info(name, default)

    # -- for the listener ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Move bytes both ways until either side ends."""
        connection = self._connection
        connection.connection_made(self)
        watching = asyncio.create_task(self._watch())
        error: Exception | None = None
        try:
            error = await self._read()
        finally:
            connection.connection_lost(error)
            self.close()
            await watching

    async def _read(self) -> Exception | None:
        while True:
            await self._reading.wait()
            message = await self._websocket.receive()
            if message.type is WSMsgType.BINARY:
                self._connection.data_received(message.data)
                if self._connection.session is not None:
                    self._frames.message_bytes_max = self._whole_bytes_max
            elif message.type is WSMsgType.TEXT:
                # MQTT-6.0.0-1: the connection ends when a frame is not binary.
                http_log.log(logging.WARNING, "%s disconnected: a text frame", self.get_extra_info("peername"))
                await self._websocket.close(code=WSCloseCode.UNSUPPORTED_DATA)
                return ConnectionAbortedError("a text frame")
            elif message.type is WSMsgType.ERROR:
                return message.data if isinstance(message.data, Exception) else ConnectionAbortedError()
            else:
                return None

    async def _watch(self) -> None:
        """Tell the connection when the peer has taken what was too much, and end the WebSocket when it is time."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._closing:
                    await self._websocket.close()
                    return
                await self._writer.drain()
                self._connection.resume_writing()
        except ConnectionError:
            # The reading side sees the same end, and reports it.
            return


@final
class WebSocketListener:
    """An HTTP server with one address: that of the WebSocket."""

    __slots__ = ("_http", "_listener", "_loopback", "_origins", "_path", "limits", "log", "server")

    def __init__(
        self,
        server: "Server",
        path: str = "/mqtt",
        origins: Sequence[str] = (),
    ) -> None:
        """`origins`: the web pages whose scripts may connect, "*" for all.

        None named: all, but on a loopback address only pages of this machine. Anyone's page in a browser on this
        machine could otherwise talk to a server that trusts the machine.
        """
        self.log: Final = http_log
        self.server: Final = server
        self.limits: Final[Limits] = server.limits
        self._path: Final = path
        self._origins: Final = frozenset(origin.lower() for origin in origins)
        self._loopback = False
        self._listener: asyncio.Server | None = None
        self._http: Final = web.Server(self._handle)

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; returns the port, which the system chose if 0 was asked for."""
        self._loopback = is_loopback(host)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: HttpConnection(self, self._http),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=self.limits.connect_timeout_s if tls is not None else None,
            backlog=BACKLOG,
            reuse_address=True,
        )
        return int(self._listener.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more connections."""
        if self._listener is not None:
            self._listener.close()
        self._http.pre_shutdown()

    async def wait_closed(self) -> None:
        """End what is still open."""
        await self._http.shutdown(CLOSE_GRACE_S)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != self._path:
            return web.Response(status=404, text=f"MQTT is at {self._path}\n")
        if not self._may_come_from(request.headers.get("Origin")):
            origin = shown_name(request.headers["Origin"])
            http_log.log(logging.WARNING, "a page of %s may not connect (listeners.ws_origins)", origin)
            return web.Response(status=403, text="pages of this origin may not connect\n")
        offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        selected = next((name for name in SUBPROTOCOLS if name in offered), None)
        if selected is None:
            return web.Response(status=400, text='a WebSocket that offers the subprotocol "mqtt" is expected\n')
        websocket = web.WebSocketResponse(
            protocols=(selected,),
            # The peer could make the server unpack far more than it sent.
            compress=False,
            timeout=CLOSE_GRACE_S,
            max_msg_size=self.limits.packet_bytes_max + MESSAGE_SLACK_BYTES,
        )
        writer = await websocket.prepare(request)
        http = request.protocol
        assert isinstance(http, HttpConnection) and http.frames is not None
        connection = self.server.new_stream()
        whole_bytes_max = self.limits.packet_bytes_max + MESSAGE_SLACK_BYTES
        await WebSocketTransport(request, websocket, writer, connection, http.frames, whole_bytes_max).run()
        return websocket

    def _may_come_from(self, origin: str | None) -> bool:
        """Only browsers say where a script comes from; every other client is its own master."""
        if origin is None or "*" in self._origins:
            return True
        if self._origins:
            return origin.lower() in self._origins
        if not self._loopback:
            return True
        try:
            return is_loopback(urlsplit(origin).hostname or "")
        except ValueError:  # no address at all
            return False
