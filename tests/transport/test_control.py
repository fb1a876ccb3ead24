"""The control socket, line by line: answers in order, at the pace of their reader, and none before the disk's."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.packets import Publish
from embermq.store.budgets import RetainedBudget
from embermq.store.interface import Store
from embermq.store.memory import MemoryStore
from embermq.transport import control
from embermq.transport.addresses import unix_address
from embermq.transport.server import Server
from support.stores import ScriptedStore

TIMEOUT_S = 20


class Operator:
    """One conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def ask(self, **request: Any) -> None:
        self.send(json.dumps(request).encode() + b"\n")

    def set(self, topic_name: str, payload: bytes, **more: Any) -> None:
        self.ask(op="set", topic=topic_name, payload=b64encode(payload).decode(), **more)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._reader.readline(), TIMEOUT_S)
        answer = json.loads(line)
        assert isinstance(answer, dict) and line.endswith(b"\n")
        return answer

    async def closed(self) -> None:
        with suppress(ConnectionResetError):  # where the server had not read all
            assert await asyncio.wait_for(self._reader.read(), TIMEOUT_S) == b""

    def close(self) -> None:
        self._writer.close()


class Place:
    """A server with a control socket."""

    def __init__(self, server: Server, path: Path) -> None:
        self.server = server
        self._path = path
        self._operators: list[Operator] = []

    async def operator(self) -> Operator:
        with unix_address(self._path) as address:
            operator = Operator(*await asyncio.open_unix_connection(address, limit=64 * 1024))
        self._operators.append(operator)
        return operator

    def close(self) -> None:
        for operator in self._operators:
            operator.close()


@asynccontextmanager
async def serving(path: Path, store: Store, limits: Limits | None = None) -> AsyncIterator[Place]:
    server = Server(store=store, access=AllowAll(), limits=limits or Limits(), sys_interval_s=0)
    await server.start()
    await server.listen_control(path)
    place = Place(server, path)
    try:
        yield place
    finally:
        place.close()
        await server.stop()


def run(
    tmp_path: Path,
    test: Callable[[Place], Awaitable[None]],
    store: Store | None = None,
    limits: Limits | None = None,
) -> None:
    async def served() -> None:
        async with serving(tmp_path / "control.sock", store if store is not None else MemoryStore(), limits) as place:
            await test(place)

    asyncio.run(served())
    assert not (tmp_path / "control.sock").exists()


def test_bad_requests_are_explained_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        operator = await place.operator()
        for request, expected in (
            (b"nonsense\n", "expected a JSON object on one line"),
            (b"[]\n", "expected a JSON object on one line"),
            (b"\xff\n", "expected a JSON object on one line"),
            (b'{"op": "drop"}\n', "expected op ls, get, set, clear or stat, not 'drop'"),
            (b'{"op": "ls"}\n', "expected filter as a text"),
            (b'{"op": "ls", "filter": "a#"}\n', "expected a topic filter: '#' does not occupy a whole level"),
            (b'{"op": "ls", "filter": "#", "as_of_us": -1}\n', "expected as_of_us as a number that is not negative"),
            (b'{"op": "ls", "filter": "#", "as_of_us": "now"}\n', "expected as_of_us as a number that is not negative"),
            (b'{"op": "ls", "filter": "#", "as_of_us": 1}\n', "a store in memory keeps no history"),
            (b'{"op": "get", "topic": "+"}\n', "expected a topic name: wildcard in a topic name"),
            (b'{"op": "set", "topic": "a", "payload": "?"}\n', "expected payload as base64"),
            (b'{"op": "set", "topic": "a"}\n', "expected a payload that is not empty: an empty one clears"),
            (b'{"op": "set", "topic": "\\ud800", "payload": "MQ=="}\n', "expected a topic name: not UTF-8"),
            (b'{"op": "set", "topic": "a", "payload": "MQ==", "qos": 3}\n', "expected qos 0, 1 or 2, not 3"),
        ):
            operator.send(request)
            assert await operator.answer() == {"error": expected}
        operator.ask(op="stat")
        assert (await operator.answer())["done"]["retained"] == [0, 0]

    run(tmp_path, test)


def test_a_line_without_end_is_not_gathered(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        operator = await place.operator()
        operator.send(b"x" * (2 * control.LINE_OVERHEAD_BYTES + 10_000) + b"\n")
        assert await operator.answer() == {"error": "the request is larger than limits.packet_bytes_max allows"}
        await operator.closed()

    run(tmp_path, test, limits=Limits(packet_bytes_max=1_000))


def test_answers_come_in_the_order_of_requests(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        operator = await place.operator()
        operator.set("a/1", b"1", qos=2)
        operator.set("a/2", b"2")
        operator.ask(op="set", topic="a", payload="?")
        operator.set("b", b"3", properties=b64encode(b"p").decode())
        operator.ask(op="get", topic="b")  # sees what was set before it
        assert await operator.answer() == {"done": {}}
        assert await operator.answer() == {"refused": "a/# holds 1 retained messages of at most 1"}
        assert await operator.answer() == {"error": "expected payload as base64"}
        assert await operator.answer() == {"done": {}}
        message = (await operator.answer())["message"]
        assert (message["payload"], message["properties"], message["client_id"]) == ("Mw==", "cA==", "$operator")
        assert await operator.answer() == {"done": {"messages": 1}}
        operator.ask(op="ls", filter="#", payload_bytes_max=0)
        found = [(await operator.answer())["message"] for _ in range(2)]
        assert [(each["topic"], each["payload"], each["payload_bytes"], each["qos"]) for each in found] == [
            ("a/1", "", 1, 2),
            ("b", "", 1, 0),
        ]
        assert await operator.answer() == {"done": {"messages": 2}}
        operator.ask(op="clear", filter="#", dry_run=True)
        assert [(await operator.answer())["message"]["topic"] for _ in range(2)] == ["a/1", "b"]
        assert await operator.answer() == {"done": {"messages": 2}}
        operator.ask(op="clear", filter="#")
        assert await operator.answer() == {"cleared": 2}
        assert await operator.answer() == {"done": {"messages": 2}}
        operator.ask(op="get", topic="b")
        assert await operator.answer() == {"done": {"messages": 0}}

    run(tmp_path, test, MemoryStore([RetainedBudget("a/#", count_max=1)]))


def test_nothing_is_answered_before_it_is_durable(tmp_path: Path) -> None:
    store = ScriptedStore()

    async def test(place: Place) -> None:
        operator = await place.operator()
        other = await place.operator()
        operator.set("a", b"1")
        operator.ask(op="stat")
        other.ask(op="stat")
        await other.answer()  # the server has had its turns
        while store.done is None:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(operator.answer())
        other.ask(op="stat")
        await other.answer()
        assert not waiting.done()
        store.finish()
        assert await waiting == {"done": {}}
        assert "done" in await operator.answer()

    run(tmp_path, test, store)


def test_a_disk_that_fails_is_told_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "FAILING_CHECK_S", 0.05)
    store = ScriptedStore()

    async def test(place: Place) -> None:
        operator = await place.operator()
        operator.set("a", b"1")
        operator.set("b", b"1")
        while store.done is None:
            await asyncio.sleep(0)
        store.trouble = "no space left"
        operator.ask(op="stat")
        assert await operator.answer() == {"error": "not durable yet: no space left"}
        assert await operator.answer() == {"error": "not durable yet: no space left"}
        assert (await operator.answer())["done"]["failing"] == "no space left"
        operator.set("c", b"1")
        assert "no space left" in (await operator.answer())["error"]
        store.trouble = ""
        store.finish()
        operator.ask(op="get", topic="b")  # no answer comes a second time
        assert (await operator.answer())["message"]["topic"] == "b"

    run(tmp_path, test, store)


def test_a_listing_waits_for_its_reader_and_no_other_waits(tmp_path: Path) -> None:
    store = ScriptedStore(late=False, queues=False)
    for number in range(4_000):
        store.append_publish(Publish(f"a/{number:04}", bytes(10_000), 0, True), "c")

    async def test(place: Place) -> None:
        idle = await place.operator()
        idle.ask(op="ls", filter="#")
        first = await idle.answer()
        other = await place.operator()
        for number in range(200):
            other.set(f"b/{number}", b"1")
            assert await other.answer() == {"done": {}}
        # 40 MB wait to be read; what was taken out for them fits between the two.
        assert store.piece_messages < 1_000
        topics = [first["message"]["topic"]]
        while "message" in (answer := await idle.answer()):
            topics.append(answer["message"]["topic"])
        assert topics[:4_000] == [f"a/{number:04}" for number in range(4_000)]
        assert answer == {"done": {"messages": 4_200}}

    run(tmp_path, test, store)


def test_too_many_conversations_and_the_end_of_the_server(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        operators = [await place.operator() for _ in range(control.CONVERSATIONS_MAX)]
        for operator in operators:
            operator.ask(op="stat")
            assert "done" in await operator.answer()
        refused = await place.operator()
        assert "commands are talking to this server already" in (await refused.answer())["error"]
        await refused.closed()
        operators[0].close()
        stopping = asyncio.create_task(place.server.stop())
        assert await operators[1].answer() == {"error": "the server is shutting down"}
        await operators[1].closed()
        await stopping

    run(tmp_path, test)


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    path.write_text("anything")

    async def test(place: Place) -> None:
        assert path.is_socket() and path.stat().st_mode & 0o777 == 0o600
        operator = await place.operator()
        operator.ask(op="stat")
        assert "done" in await operator.answer()

    run(tmp_path, test)


def test_a_directory_with_a_long_name(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 150)
    deep.mkdir()

    async def test(place: Place) -> None:
        operator = await place.operator()
        operator.ask(op="stat")
        assert "done" in await operator.answer()

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no way around the length of an address here")
    run(deep, test)
