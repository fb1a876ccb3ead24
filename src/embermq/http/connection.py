"""A connection of the HTTP interface: which of its bytes the HTTP library gets, and when.

Owns: the order of reading. The parser gets the head of one request; the body only when the application wants it, which
is after the login; the next head when the answer was sent. Until then the bytes of one read wait, and no more are read.
A body that is not wanted is dropped unread, and the connection ends. Nothing that is encoded is ever decoded.
"""

import asyncio
import logging
import ssl
import time
from typing import TYPE_CHECKING, Final, final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from embermq.http.fields import json_text
from embermq.http.refusal import INTERNAL_ERROR
from embermq.http.unread import stall_s
from embermq.transport.rate_limited_log import http_log
from embermq.transport.sockets.addresses import shown_peer

if TYPE_CHECKING:
    from embermq.http.listener import HttpListener

LINE_BYTES_MAX: Final = 256 * 1024
"""Of the first line of a request: a topic filter may have 65,535 bytes, each written as three characters."""
HEAD_BYTES_MAX: Final = LINE_BYTES_MAX + 64 * 1024
"""Of the first line and all headers."""
LARGE_HEAD_BYTES: Final = 32 * 1024
"""From here on it matters how large the heads of other connections are."""
HEADERS_MAX: Final = 64
KEEP_ALIVE_S: Final = 30.0
"""How long a client that has logged in may wait with its next request."""
LINGERING_S: Final = 2.0
"""How long a body that nobody wants is dropped before the connection ends, so that its sender reads the answer."""
UNKNOWN_BYTES: Final = 1 << 63
END_OF_HEAD: Final = b"\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_TOO_LARGE: Final = "the head of the request is too large"
_TOO_LARGE_BODY: Final = json_text({"error": _TOO_LARGE}).encode()
HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s" % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY)
)
NO_REQUEST: Final = "expected a request of HTTP/1.1"

# What becomes of the bytes that come.
HEAD: Final = 0  # they are the head of a request
NOTHING: Final = 1  # they wait: a request is being answered
BODY: Final = 2  # they are the body that the application reads
DROPPED: Final = 3  # they are a body that nobody wants
FRAMES: Final = 4  # they are those of a WebSocket


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


@final
class HttpConnection(web.RequestHandler):
    """One connection. `address_key` is what its address counts as; `since_s` is when something last happened."""

    __slots__ = (
        "_body_bytes",
        "_body_left",
        "_held",
        "_is_lost",
        "_listener",
        "_reads",
        "_stall_s",
        "_tail",
        "_timeout",
        "_work",
        "address_key",
        "has_begun",
        "head_bytes",
        "is_logged_in",
        "since_s",
    )

    def __init__(self, listener: "HttpListener", http: web.Server, lingering_s: float = LINGERING_S) -> None:
        super().__init__(
            http,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # the library's own way to have none
            logger=http_logger,
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=lingering_s,
            max_line_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX,
            auto_decompress=False,
        )
        self._listener: Final = listener
        self._reads = HEAD
        self._held = b""  # what has come and nobody wants yet
        self._is_lost = False
        self._tail = b""  # the last bytes of an incomplete head
        self.head_bytes = 0
        self._body_bytes = 0  # of the body that is being read, or was
        self._body_left = 0  # bytes of a body that have not come
        self._timeout: asyncio.TimerHandle | None = None
        self._stall_s = 0.0  # how long the reader of the last answer may take
        self._work: asyncio.Task[object] | None = None  # is of no use without the connection
        self.address_key = ""
        self.has_begun = False  # the answer to the request of now
        self.is_logged_in = False
        self.since_s = 0.0

    # -- the connection --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._is_lost:  # during the TLS handshake
            return
        super().connection_made(transport)
        assert self.transport is not None
        self.address_key = self._listener.address_key(self.transport)
        self._await_head()
        if not self._listener.admit(self):
            self.abort()
            return
        self._proceed()  # with TLS, bytes may have come already

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_lost = True
        self._listener.forget(self)
        self._stop_timeout()
        self._forget_body()
        self._held = b""
        if self._work is not None:
            self._work.cancel()
            self._work = None
        super().connection_lost(exc)

    def abort(self) -> None:
        """End it at once."""
        if self.transport is not None:
            self.transport.abort()

    def is_waiting(self) -> bool:
        """Whether it waits for its client: for a request, or until the client reads. It may be closed for another."""
        if self._reads in (HEAD, DROPPED) or self.transport is None:
            return True
        return self.transport.get_write_buffer_size() > 0

    def log_in(self) -> None:
        """The request that is being answered has a login."""
        self.is_logged_in = True

    def end_with_client(self) -> None:
        """The request that is being answered only asks: if its client goes away, the task that answers is cancelled."""
        self._work = asyncio.current_task()

    # -- reading ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not data:  # the library goes on with what its parser has kept
            super().data_received(data)
            return
        if self._reads == DROPPED:
            self._drop(len(data))
            return
        self._held += data
        self._proceed()

    def _proceed(self) -> None:
        """Give the parser what it may have."""
        while self._held and self.transport is not None:
            if self._reads == HEAD:
                self._feed_head()
            elif self._reads == BODY and self._body_left:
                piece, self._held = self._held[: self._body_left], self._held[self._body_left :]
                self._body_left -= len(piece)
                super().data_received(piece)
            elif self._reads == FRAMES:
                piece, self._held = self._held, b""
                super().data_received(piece)
            else:
                self.transport.pause_reading()
                return

    def _feed_head(self) -> None:
        if not self.head_bytes:
            self._held = self._held.lstrip(b"\r\n")  # empty lines before a request (RFC 9112, 2.2)
        joined = self._tail + self._held
        at = joined.find(END_OF_HEAD)
        count = len(self._held) if at < 0 else at + len(END_OF_HEAD) - len(self._tail)
        piece, self._held = self._held[:count], self._held[count:]
        self._tail = joined[-len(END_OF_HEAD) + 1 :]
        self.head_bytes += count
        if self.head_bytes > HEAD_BYTES_MAX or (
            self.head_bytes > LARGE_HEAD_BYTES and not self._listener.has_room_for_head()
        ):
            self._refuse_head()
            return
        if at >= 0:
            self._reads = NOTHING
            self.head_bytes = 0
            self._tail = b""
            self._stop_timeout()
            self.since_s = time.monotonic()
        super().data_received(piece)

    def _refuse_head(self) -> None:
        self._held = b""
        self._reads = DROPPED
        assert self.transport is not None
        http_log.log(logging.WARNING, "%s disconnected: too large a head", shown_peer(self.peername))
        self.transport.write(HEAD_TOO_LARGE)
        self.transport.close()

    def _drop(self, count: int) -> None:
        """Bytes of a body that nobody wants have come."""
        self._body_left -= count
        if self._body_left <= 0 and self.transport is not None:
            self.transport.close()  # after the answer; the sender has nothing more to send

    async def want_body(self, request: web.Request, size_bytes: int) -> None:
        """Read the body of the request that is being answered, which its head says is that large."""
        self._listener.add_body(size_bytes)
        self._body_bytes = size_bytes
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(CONTINUE)
            request.writer.output_size = 0  # the answer itself has not begun
        if self.transport is None:
            raise ConnectionResetError("the client is gone")
        self._reads = BODY
        self._body_left = size_bytes
        self.transport.resume_reading()
        self._proceed()

    def read_on(self) -> None:
        """The request that is being answered has become a WebSocket: what comes from now on is for its parser."""
        self._reads = FRAMES
        if self.transport is not None:
            self.transport.resume_reading()
            self._proceed()

    def _forget_body(self) -> None:
        self._listener.remove_body(self._body_bytes)
        self._body_bytes = 0

    # -- answering -------------------------------------------------------------------------------------------------

    def begin_answer(self) -> None:
        """The head of the answer is made."""
        self.has_begun = True

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The library's call for a request that it cannot read: refuse it as others, without repeating its bytes."""
        super().handle_error(request, status, exc, message)  # it logs
        is_too_large = isinstance(exc, LineTooLong) or "Too many headers" in str(exc)
        sentence = INTERNAL_ERROR if status >= 500 else _TOO_LARGE if is_too_large else NO_REQUEST
        refused = web.Response(body=json_text({"error": sentence}).encode(), status=status)
        refused.content_type = "application/json"
        refused.force_close()
        return refused

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """The library's call when there is an answer: send it, and go on with the next request."""
        self._work = None
        name_server(resp)
        is_body_unread = request.body_exists and not request.content.is_eof()
        if is_body_unread:
            resp.force_close()
        self._stall_s = stall_s(request)
        try:
            async with asyncio.timeout(self._stall_s):
                sent = await super().finish_response(request, resp, start_time)
        except TimeoutError:
            self._listener.counts.streams_ended += 1
            self.abort()
            raise ConnectionResetError("the reader of an answer does not read") from None
        self.has_begun = False
        self._forget_body()
        if self.transport is None:
            return sent
        if is_body_unread:
            if self._reads != BODY:
                self._body_left = request.content_length or UNKNOWN_BYTES
            self._reads = DROPPED
            dropped_bytes, self._held = len(self._held), b""
            self._drop(dropped_bytes)
        else:
            self._reads = HEAD
            self._await_head()
        self.transport.resume_reading()
        self._proceed()
        return sent

    # -- time ------------------------------------------------------------------------------------------------------

    def _await_head(self) -> None:
        self._stop_timeout()
        self.since_s = time.monotonic()
        wait_s = KEEP_ALIVE_S if self.is_logged_in else self._listener.head_timeout_s
        self._timeout = asyncio.get_running_loop().call_later(wait_s, self._time_out)

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _time_out(self) -> None:
        """The client has not asked in time. As long as it may take to read an answer, it may read the end of it."""
        self._timeout = None
        transport = self.transport
        unsent_bytes = 0 if transport is None else transport.get_write_buffer_size()
        if unsent_bytes and time.monotonic() - self.since_s < self._stall_s:
            self._timeout = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._time_out)
            return
        self._listener.counts.connections_closed += 1
        self.abort()


@final
class TlsHandshake(asyncio.Protocol):
    """A connection that is to become one of HTTP, and has a place as one without a login."""

    __slots__ = ("_context", "_http", "_listener", "_task", "_transport", "address_key", "is_logged_in", "since_s")

    def __init__(self, listener: "HttpListener", http: web.Server, context: ssl.SSLContext) -> None:
        self._listener: Final = listener
        self._http: Final = http
        self._context: Final = context
        self._task: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self.address_key = ""
        self.is_logged_in: Final = False
        self.since_s = 0.0

    @property
    def peername(self) -> object:
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        opened: asyncio.Transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's
        self._transport = opened
        self.address_key = self._listener.address_key(opened)
        self.since_s = time.monotonic()
        if not self._listener.admit(self):
            opened.abort()
            return
        opened.pause_reading()  # what comes is for the handshake
        self._task = asyncio.get_running_loop().create_task(self._run(opened))

    async def _run(self, transport: asyncio.Transport) -> None:
        connection = HttpConnection(self._listener, self._http)
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                connection,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._listener.head_timeout_s,
            )
        except OSError:  # it speaks no TLS, is too slow, or is gone
            return
        finally:
            self._listener.forget(self)
        if encrypted is not None:
            connection.connection_made(encrypted)

    def is_waiting(self) -> bool:
        return True

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()


def name_server(response: web.StreamResponse) -> None:
    """Say which server answers, without versions: the library would add its own, and that of Python."""
    response.headers["Server"] = "EmberMQ"


def connection_of(request: web.BaseRequest) -> HttpConnection:
    """The connection that a request came on."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    return connection
