"""The control socket: what an operator asks of a running server, as lines of JSON on a unix socket in its directory.

Owns: the requests, answers in pieces at the pace of their reader, and that a write is answered when it is durable.
Never: a decision about a message. The core decides about writes as about every message; the store answers questions.

A request is one line, {"op": "ls", "filter": "a/#"}. Its answer is any number of lines {"message": {...}} (ls, get)
or {"cleared": 17} (clear, so far), then {"done": {...}}; {"refused": "why"} for a message that a limit or a budget
keeps out; {"error": "a sentence"} at any point ends it. Requests are answered in their order; many of `set` may be
pending at once, and share a commit.
"""

import asyncio
import json
import logging
import os
import socket
from base64 import b64decode
from binascii import Error as Base64Error
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from embermq import __version__
from embermq.broker.operator import (
    cleared,
    retain,
    retained_message,
    retained_pieces,
    wrong_topic_filter,
    wrong_topic_name,
)
from embermq.protocol.packets import Publish
from embermq.store.interface import StoreError
from embermq.transport.addresses import unix_address
from embermq.transport.control_messages import retained_object

if TYPE_CHECKING:
    from embermq.transport.server import Server

logger: Final = logging.getLogger("embermq")

CONVERSATIONS_MAX: Final = 16
LINE_OVERHEAD_BYTES: Final = 1024 * 1024
"""What a request may hold beside the largest payload: a topic name may be six times as long as JSON escapes."""
WINDOW_MESSAGES: Final = 2_000
WINDOW_BYTES: Final = 8 * 1024 * 1024
"""How much of one conversation may wait for the disk; what it sends beyond that is not read."""
TURN_MESSAGES: Final = 128
"""How many requests of one conversation are taken before others have their turn."""
FAILING_CHECK_S: Final = 1.0


class _BadRequest(Exception):
    """A request that cannot be understood; the text says what was expected."""


@final
class _Answer:
    """The place of an answer in the order of answers; empty until it is known."""

    __slots__ = ("line",)

    def __init__(self, line: bytes = b"") -> None:
        self.line = line


@final
class Control:
    """The conversations of one server with its operators."""

    __slots__ = ("_conversations", "_server")

    def __init__(self, server: "Server") -> None:
        self._server: Final = server
        self._conversations: Final[set[asyncio.Task[None]]] = set()

    async def listen(self, path: Path) -> asyncio.Server:
        """Listen at a path. This server has the directory's lock, so a socket left there is old and is replaced."""
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with unix_address(path) as address:
                listener.bind(address)
            path.chmod(0o600)
            line_bytes_max = self._server.limits.packet_bytes_max * 4 // 3 + LINE_OVERHEAD_BYTES
            return await asyncio.start_unix_server(self._accept, sock=listener, limit=line_bytes_max)
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """End every conversation."""
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._conversations.add(task)
        try:
            if len(self._conversations) > CONVERSATIONS_MAX:
                writer.write(_line({"error": f"{CONVERSATIONS_MAX} commands are talking to this server already"}))
            else:
                await Conversation(self._server, reader, writer).run()
        except ConnectionError:
            pass  # the command ended first
        except asyncio.CancelledError:
            writer.write(_line({"error": "the server is shutting down"}))
        except Exception as error:
            self._server.bug(error)
            writer.write(_line({"error": "internal error, the server's log has the details"}))
        finally:
            self._conversations.discard(task)
            writer.close()


@final
class Conversation:
    """One operator's connection: requests one after the other, writes in a window."""

    __slots__ = ("_answers", "_news", "_pending", "_pending_bytes", "_reader", "_server", "_taken", "_writer")

    def __init__(self, server: "Server", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server: Final = server
        self._reader: Final = reader
        self._writer: Final = writer
        self._answers: Final[deque[_Answer]] = deque()
        self._pending = 0  # writes that are not durable yet
        self._pending_bytes = 0
        self._news: Final = asyncio.Event()
        self._taken = 0

    async def run(self) -> None:
        """Answer until the operator hangs up."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # asyncio has no better name for a line above the limit
                await self._durable()
                self._write({"error": "the request is larger than limits.packet_bytes_max allows"})
                return
            if not line.endswith(b"\n"):
                return
            try:
                await self._request(line)
            except (_BadRequest, StoreError) as error:
                self._queue(_Answer(_line({"error": str(error)})))
            await self._writer.drain()

    async def _request(self, line: bytes) -> None:
        try:
            request = json.loads(line)
        except ValueError:
            request = None
        if not isinstance(request, dict):
            raise _BadRequest("expected a JSON object on one line")
        operation = request.get("op")
        if operation == "set":
            await self._set(request)
            return
        await self._durable()  # a question sees what was set before it
        if operation == "ls":
            await self._list(request)
        elif operation == "get":
            self._get(request)
        elif operation == "clear":
            await self._clear(request)
        elif operation == "stat":
            self._stat()
        else:
            raise _BadRequest(f"expected op ls, get, set, clear or stat, not {operation!r}")

    # -- questions -----------------------------------------------------------------------------------------------

    async def _list(self, request: dict[str, Any]) -> None:
        payload_bytes_max = _number(request, "payload_bytes_max", None)
        await self._stream(_topic_filter(request), _number(request, "as_of_us", None), payload_bytes_max)

    async def _stream(self, topic_filter: str, as_of_us: int | None, payload_bytes_max: int | None) -> None:
        messages = 0
        for piece in retained_pieces(self._server.store, topic_filter, as_of_us):
            for retained in piece:
                self._write({"message": retained_object(retained, payload_bytes_max)})
            messages += len(piece)
            await self._writer.drain()
            await asyncio.sleep(0)  # drain alone does not wait while the buffer has space
        self._write({"done": {"messages": messages}})

    def _get(self, request: dict[str, Any]) -> None:
        topic_name = _topic_name(request)
        retained = retained_message(self._server.store, topic_name, _number(request, "as_of_us", None))
        if retained is not None:
            self._write({"message": retained_object(retained, None)})
        self._write({"done": {"messages": 0 if retained is None else 1}})

    def _stat(self) -> None:
        store = self._server.store
        self._write(
            {
                "done": {
                    "version": __version__,
                    "process": os.getpid(),
                    "retained": store.retained_totals(),
                    "budgets": store.retained_budget_totals(),
                    "sessions": sum(1 for session in self._server.core.sessions() if session.session_id),
                    "clients": self._server.core.counters.clients_connected,
                    "next_offset": store.next_offset(),
                    "failing": store.failing(),
                }
            }
        )

    # -- writes --------------------------------------------------------------------------------------------------

    async def _set(self, request: dict[str, Any]) -> None:
        payload = _bytes(request, "payload")
        if not payload:
            raise _BadRequest("expected a payload that is not empty: an empty one clears")
        qos = _number(request, "qos", 0)
        if qos not in (0, 1, 2):
            raise _BadRequest(f"expected qos 0, 1 or 2, not {qos}")
        message = Publish(_topic_name(request), payload, qos, True, False, 0, _bytes(request, "properties"))
        answer = _Answer()

        def durable() -> None:
            if not answer.line:
                answer.line = _DONE
            self._send_answers()

        refusal = self._retain(message, durable)
        if refusal:
            answer.line = _line({"refused": refusal})
        self._queue(answer)
        self._taken += 1
        if self._taken % TURN_MESSAGES == 0:
            await asyncio.sleep(0)
        await self._until(lambda: self._pending < WINDOW_MESSAGES and self._pending_bytes < WINDOW_BYTES)

    async def _clear(self, request: dict[str, Any]) -> None:
        topic_filter = _topic_filter(request)
        if request.get("dry_run"):
            await self._stream(topic_filter, None, 0)
            return
        messages = 0
        for piece in retained_pieces(self._server.store, topic_filter):
            for retained in piece:
                refusal = self._retain(cleared(retained), lambda: None)
                if refusal:
                    raise StoreError(f"cleared {messages} messages, then not {retained.topic_name}: {refusal}")
                messages += 1
            await self._durable()
            failing = self._server.store.failing() if self._pending else ""
            if failing:
                raise StoreError(f"the last messages are not cleared durably: {failing}")
            self._write({"cleared": messages})
            await self._writer.drain()
            await asyncio.sleep(0)
        self._write({"done": {"messages": messages}})

    def _retain(self, message: Publish, on_durable: Callable[[], None]) -> str:
        """Publish within a turn, counted until it is durable."""
        size_bytes = len(message.payload)

        def durable() -> None:
            self._pending -= 1
            self._pending_bytes -= size_bytes
            on_durable()
            self._news.set()

        server = self._server
        server.begin_turn()
        refusal = retain(server.core, server.store, server.limits, message, durable)
        if not refusal:
            self._pending += 1
            self._pending_bytes += size_bytes
        return refusal

    # -- waiting and answering -----------------------------------------------------------------------------------

    async def _durable(self) -> None:
        """Wait until all writes of this conversation are durable, or the disk fails."""
        await self._until(lambda: self._pending == 0)

    async def _until(self, reached: Callable[[], bool]) -> None:
        """Wait for something that only finished writes bring about. Returns without it while the disk fails."""
        while not reached():
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), FAILING_CHECK_S)
                continue
            failing = self._server.store.failing()
            if failing:
                self._give_up(failing)
                return

    def _give_up(self, failing: str) -> None:
        """What waits for the disk is answered now; it may become durable later, when the disk does its work again."""
        for answer in self._answers:
            if not answer.line:
                answer.line = _line({"error": f"not durable yet: {failing}"})
        self._send_answers()

    def _queue(self, answer: _Answer) -> None:
        self._answers.append(answer)
        self._send_answers()

    def _send_answers(self) -> None:
        answers = self._answers
        while answers and answers[0].line:
            self._writer.write(answers.popleft().line)

    def _write(self, answer: dict[str, Any]) -> None:
        self._writer.write(_line(answer))


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"


_DONE: Final = _line({"done": {}})


def _text(request: dict[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise _BadRequest(f"expected {key} as a text")
    return value


def _number(request: dict[str, Any], key: str, default: int | None) -> Any:
    value = request.get(key, default)
    if value is not default and (type(value) is not int or value < 0):
        raise _BadRequest(f"expected {key} as a number that is not negative")
    return value


def _bytes(request: dict[str, Any], key: str) -> bytes:
    try:
        return b64decode(_text(request, key) if key in request else "", validate=True)
    except (Base64Error, ValueError):
        raise _BadRequest(f"expected {key} as base64") from None


def _topic_name(request: dict[str, Any]) -> str:
    topic_name = _text(request, "topic")
    wrong = wrong_topic_name(topic_name)
    if wrong:
        raise _BadRequest(f"expected a topic name: {wrong}")
    return topic_name


def _topic_filter(request: dict[str, Any]) -> str:
    topic_filter = _text(request, "filter")
    wrong = wrong_topic_filter(topic_filter)
    if wrong:
        raise _BadRequest(f"expected a topic filter: {wrong}")
    return topic_filter
