"""Events for one reader: server-sent events, or the text messages of a WebSocket.

Owns: how an event looks in each form, and that one of a WebSocket is sent at the pace of its reader, as lines are.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Final, Self, final

from aiohttp import WSCloseCode, web

from embermq.http.connection import connection_of
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.listing import stall_s
from embermq.http.streaming import Stream, StreamPlaces
from embermq.http.unread import UnreadAnswer
from embermq.http.web_socket import PROTOCOL, is_web_socket

EVENTS: Final = "text/event-stream"
MESSAGE_BYTES_MAX: Final = 1024
"""A reader has nothing to say; a longer message ends the connection."""
CLOSE_S: Final = 2.0
"""How long the server waits for the reader's part of the closing handshake."""


class Events(ABC):
    """A reader of events, inside a context, which takes a place among the streams."""

    __slots__ = ()

    @property
    @abstractmethod
    def unread(self) -> UnreadAnswer:
        """What is kept for the reader."""

    @abstractmethod
    async def __aenter__(self) -> Self: ...

    @abstractmethod
    async def __aexit__(self, *ended: object) -> None: ...

    @abstractmethod
    def event(self, name: str, data: str, offset: int | None = None) -> Awaitable[None]:
        """Send an event, or gather it with those that follow. `data` is JSON."""

    @abstractmethod
    async def begin(self) -> None:
        """Tell the reader that no event is missed from now on."""

    @abstractmethod
    async def quiet(self) -> None:
        """Send something that is no event, so that both sides notice a connection that is gone."""

    @abstractmethod
    async def flush(self) -> None:
        """Send what was gathered; wait while the reader is behind."""

    @abstractmethod
    def check_reader(self) -> None:
        """ConnectionError if the reader is gone."""

    @abstractmethod
    async def complete(self) -> web.StreamResponse:
        """There are no further events."""


def events_for(request: web.Request, places: StreamPlaces) -> Events:
    """The form that is asked for."""
    return WebSocketEvents(request, places) if is_web_socket(request) else ServerSentEvents(request, places)


@final
class ServerSentEvents(Events):
    """Events as `text/event-stream`."""

    __slots__ = ("_stream",)

    def __init__(self, request: web.Request, places: StreamPlaces) -> None:
        self._stream: Final = Stream(request, places, stall_s(request), EVENTS)

    @property
    def unread(self) -> UnreadAnswer:
        return self._stream.unread

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *ended: object) -> None:
        await self._stream.__aexit__(*ended)

    def event(self, name: str, data: str, offset: int | None = None) -> Awaitable[None]:
        # Not a coroutine: its frame would keep the text a second time while the reader is behind.
        number = "" if offset is None else f"id: {offset}\n"
        return self._stream.line(f"{number}event: {name}\ndata: {data}\n")

    async def begin(self) -> None:
        await self._stream.line(": the tail begins\n")
        await self._stream.flush()

    async def quiet(self) -> None:
        await self._stream.line(": quiet\n")

    async def flush(self) -> None:
        await self._stream.flush()

    def check_reader(self) -> None:
        self._stream.check_reader()

    async def complete(self) -> web.StreamResponse:
        return await self._stream.complete()


@final
class WebSocketEvents(Events):
    """Events as text messages: `{"event": ..., "id": ..., "data": ...}`. What the reader sends is not looked at."""

    __slots__ = ("_places", "_reading", "_request", "_socket", "_stall_s", "_unread")

    def __init__(self, request: web.Request, places: StreamPlaces) -> None:
        offered = request.headers.get("Sec-WebSocket-Protocol")
        if offered is not None and PROTOCOL not in [each.strip() for each in offered.split(",")]:
            raise HttpRefusal(400, f"Sec-WebSocket-Protocol: expected {PROTOCOL}, or none")
        self._request: Final = request
        self._places: Final = places
        self._stall_s: Final = stall_s(request)
        self._unread: Final = UnreadAnswer(places.unread, request)
        self._reading: asyncio.Task[None] | None = None
        # Without compression: a short message could become a very long one.
        self._socket: Final = web.WebSocketResponse(
            protocols=(PROTOCOL,), compress=False, max_msg_size=MESSAGE_BYTES_MAX, timeout=CLOSE_S
        )

    @property
    def unread(self) -> UnreadAnswer:
        return self._unread

    async def __aenter__(self) -> Self:
        self._places.take()
        try:
            await self._socket.prepare(self._request)
        except BaseException:
            self._places.give_back()
            raise
        self._unread.__enter__()
        connection_of(self._request).read_on()
        self._reading = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(self, *ended: object) -> None:
        assert self._reading is not None
        self._reading.cancel()
        self._unread.__exit__(*ended)
        self._places.give_back()

    async def _read(self) -> None:
        """Answer pings and the closing handshake; nothing else is expected."""
        async for _ in self._socket:
            pass
        if self._request.transport is not None:
            self._request.transport.close()  # it has been closed in form: whoever sends events is told at once

    async def event(self, name: str, data: str, offset: int | None = None) -> None:
        number = "" if offset is None else f',"id":{offset}'
        text = f'{{"event":"{name}"{number},"data":{data}}}'
        del data  # else it would be kept twice while the reader is behind
        if not self._unread.keep(len(text)):
            self._unread.abort()
            raise ConnectionResetError("readers of this server leave too much unread")
        size_bytes = len(text)
        await self._in_time(self._socket.send_str(text))
        self._unread.release(size_bytes)

    async def begin(self) -> None:
        await self.event("begin", "{}")

    async def quiet(self) -> None:
        await self._in_time(self._socket.ping())

    async def _in_time(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await sending
        except TimeoutError:
            self._unread.abort()
            raise ConnectionResetError("the reader of a WebSocket does not read") from None

    async def flush(self) -> None:
        """Each message is sent when it is given."""

    def check_reader(self) -> None:
        transport = self._request.transport
        if self._socket.closed or transport is None or transport.is_closing():
            raise ConnectionResetError("the reader of a WebSocket is gone")

    async def complete(self) -> web.StreamResponse:
        await self._in_time(self._closed())
        return self._socket

    async def _closed(self) -> None:
        await self._socket.close(code=WSCloseCode.GOING_AWAY)
