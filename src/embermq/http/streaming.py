"""Streams: answers of any length, sent line by line at the pace of their reader.

Owns: how many streams there may be, how long a reader may leave one unread, that an answer is handed to the socket in
small pieces, and how one that cannot be completed ends: with a line that has only `error`, and without HTTP's own end.
"""

import asyncio
import sys
import time
from collections import deque
from typing import Final, final
from weakref import WeakKeyDictionary

from aiohttp import web

from embermq.http.fields import NDJSON, json_text
from embermq.http.refusal import HttpRefusal
from embermq.http.unread import UnreadAnswer, UnreadAnswers

STREAMS_MAX: Final = 16
SLICE_S: Final = 0.0003
"""How long a long answer is worked on before the clients of the broker have their turn."""
SLICES_TOGETHER: Final = 8
REST_S: Final = 0.001
"""After SLICES_TOGETHER slices, pause REST_S so that the store's thread and readers on the same cores get CPU."""
SWITCH_S: Final = 0.00005
"""While there is long work, this thread is seldom idle: so long may the store's thread wait for the interpreter."""
SWITCH_CHECK_S: Final = 0.2
"""When no slice was wanted for so long, the interpreter's usual interval is set again."""
USUAL_SWITCH_S: Final = sys.getswitchinterval()
CHUNK_BYTES: Final = 16 * 1024
"""How much is sent at once. A reader on the same cores is busy for as long as it has more to read, and so are they."""
PIECE_BYTES: Final = 64 * 1024
"""How much of an answer is handed to the socket before its reader must have taken the rest."""


@final
class SliceTurns:
    """Whose slice is next. Each pass of an event loop has one, however many answers are worked on: the clients of the
    broker wait no longer for many of them than for one."""

    __slots__ = ("_checked", "_given", "_has_short_switches", "_is_scheduled", "_loop", "_switch_check_s", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, switch_check_s: float = SWITCH_CHECK_S) -> None:
        self._loop: Final = loop
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        self._is_scheduled = False
        self._has_short_switches = False
        self._switch_check_s: Final = switch_check_s
        self._given = 0
        self._checked = 0

    async def next(self) -> None:
        """Wait for a turn."""
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._schedule()
        if not self._has_short_switches:
            self._has_short_switches = True
            sys.setswitchinterval(SWITCH_S)
            self._loop.call_later(self._switch_check_s, self._check)
        await turn

    def _give(self) -> None:
        self._given += 1
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its request was cancelled
                turn.set_result(None)
                break
        if self._waiting:
            self._schedule()
        else:
            self._is_scheduled = False

    def _schedule(self) -> None:
        if self._given % SLICES_TOGETHER == SLICES_TOGETHER - 1:
            self._loop.call_later(REST_S, self._give)
        else:
            self._loop.call_soon(self._give)

    def _check(self) -> None:
        if self._given != self._checked:
            self._checked = self._given
            self._loop.call_later(self._switch_check_s, self._check)
        else:
            self._has_short_switches = False
            sys.setswitchinterval(USUAL_SWITCH_S)


_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, SliceTurns]] = WeakKeyDictionary()


@final
class Slices:
    """Long work on the event loop, in slices between which everything else has its turn."""

    __slots__ = ("_ends_s", "_turns")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        turns = _turns.get(loop)
        if turns is None:
            turns = _turns[loop] = SliceTurns(loop)
        self._turns: Final = turns
        self._ends_s = time.perf_counter() + SLICE_S

    async def rest(self) -> None:
        """Let others have their turn if this slice has lasted long enough."""
        if time.perf_counter() >= self._ends_s:
            await self._turns.next()
            self._ends_s = time.perf_counter() + SLICE_S


@final
class HeadAnswered(Exception):
    """Only the head of a stream was asked for, and it is sent."""

    def __init__(self, response: web.StreamResponse) -> None:
        super().__init__()
        self.response: Final = response


@final
class StreamPlaces:
    """How many streams are being read, and what is kept for their readers."""

    __slots__ = ("count", "unread", "_count_max")

    def __init__(self, count_max: int = STREAMS_MAX, unread: UnreadAnswers | None = None) -> None:
        self.count = 0
        self.unread: Final = unread if unread is not None else UnreadAnswers()
        self._count_max: Final = count_max

    def take(self) -> None:
        if self.count >= self._count_max:
            raise HttpRefusal(
                503, f"{self._count_max} streams of this server are being read already", {"Retry-After": "5"}
            )
        self.count += 1

    def give_back(self) -> None:
        self.count -= 1


@final
class Stream:
    """One answer. Used as a context manager, which takes a place among the streams."""

    __slots__ = ("_gathered", "_places", "_request", "_response", "_size_bytes", "_stall_s", "unread")

    def __init__(self, request: web.Request, places: StreamPlaces, stall_s: float, content_type: str = NDJSON) -> None:
        self._request: Final = request
        self._places: Final = places
        self._stall_s: Final = stall_s
        self._gathered: list[str] = []
        self._size_bytes = 0
        self.unread: Final = UnreadAnswer(places.unread, request)
        self._response: Final = web.StreamResponse(
            headers={"Content-Type": content_type, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        )

    async def __aenter__(self) -> "Stream":
        self._places.take()
        try:
            await self._response.prepare(self._request)
            if self._request.method == "HEAD":
                raise HeadAnswered(self._response)
        except BaseException:
            self._places.give_back()
            raise
        self.unread.__enter__()
        return self

    async def __aexit__(self, *ended: object) -> None:
        self.unread.__exit__(*ended)
        self._places.give_back()

    async def line(self, text: str) -> None:
        """Send a line, or gather it with those that follow."""
        self._gathered.append(text)
        self._size_bytes += len(text) + 1
        if self._size_bytes >= CHUNK_BYTES:
            del text  # else it would be kept twice while the reader is behind
            await self.flush()

    async def lines(self, texts: list[str]) -> None:
        """As `line`, for many."""
        self._gathered += texts
        self._size_bytes += sum(map(len, texts)) + len(texts)
        if self._size_bytes >= CHUNK_BYTES:
            del texts
            await self.flush()

    async def flush(self) -> None:
        """Send what was gathered; wait while the reader is behind. ConnectionError if it does not read at all."""
        if not self._gathered:
            return
        data = "\n".join([*self._gathered, ""])
        self._gathered = []
        self._size_bytes = 0
        if not self.unread.keep(len(data)):
            self.unread.abort()
            raise ConnectionResetError("readers of this server leave too much unread")
        for start in range(0, len(data), PIECE_BYTES):
            await self._write(data[start : start + PIECE_BYTES].encode())
        self.unread.release(len(data))

    async def _write(self, piece: bytes) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await self._response.write(piece)
        except TimeoutError:
            self.unread.abort()
            raise ConnectionResetError("the reader of a stream does not read") from None

    def check_reader(self) -> None:
        """ConnectionError if the reader is gone: an answer that finds nothing for long would not notice."""
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the reader of a stream is gone")

    async def complete(self) -> web.StreamResponse:
        """All lines were given."""
        await self.flush()
        try:
            async with asyncio.timeout(self._stall_s):
                await self._response.write_eof()
        except TimeoutError:
            self.unread.abort()
            raise ConnectionResetError("the reader of a stream does not read") from None
        return self._response

    async def fail(self, sentence: str) -> web.StreamResponse:
        """The answer cannot be completed."""
        await self.line(json_text({"error": sentence}))
        await self.flush()
        if self._request.transport is not None:
            self._request.transport.close()
        return self._response


async def send_in_pieces(
    request: web.Request, answer: web.Response, body: bytes, everything: UnreadAnswers, stall_s: float
) -> web.StreamResponse:
    """Send an answer whose body is large, at the pace of its reader."""
    with UnreadAnswer(everything, request) as unread:
        if not unread.keep(len(body)):
            raise HttpRefusal(503, "readers of this server leave too much unread, try again", {"Retry-After": "5"})
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(body)
        await response.prepare(request)
        try:
            for start in range(0, len(body), PIECE_BYTES):
                async with asyncio.timeout(stall_s):
                    await response.write(body[start : start + PIECE_BYTES])
            async with asyncio.timeout(stall_s):
                await response.write_eof()
        except TimeoutError:
            unread.abort()
            raise ConnectionResetError("the reader of an answer does not read") from None
        return response
