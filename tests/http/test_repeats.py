"""A change that is sent again with the same Idempotency-Key is done once."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from embermq.http.fields import Model
from embermq.http.repeats import KEY_CHARACTERS_MAX, RepeatedRequests
from support.http_place import Answered, Place, run
from support.stores import ScriptedStore

REPEAT_BY_A_PROGRAM = """
import http.client, socket, sys
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
body = '{"messages": [{"topic": "a", "payload": "1"}]}'
connection.request("POST", "/api/v1/retained/set", body, headers)
sys.exit(connection.getresponse().status != 200)
"""


class Answer(Model):
    text: str


async def publish(place: Place, payload: str, key: str, path: str = "/api/v1/retained/set", **more: Any) -> Answered:
    body = {"messages": [{"topic": "a", "payload": payload}]}
    return await place.ask("POST", path, json=body, headers={"Idempotency-Key": key}, **more)


def received(place: Place) -> int:
    return place.server.core.counters.publish_received


def test_the_second_answer_is_the_first_and_nothing_is_done_again(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        first = await publish(place, "1", "k")
        await place.set("a", "other")
        before = received(place)
        again = await publish(place, "1", "k")
        assert (again.status, again.json) == (first.status, first.json)
        assert received(place) == before
        assert (await place.get("/api/v1/retained/message", topic="a")).json["payload"] == "other"
        assert (await publish(place, "1", "other key")).status == 200
        assert received(place) == before + 1

    run(tmp_path, test)


def test_a_key_is_for_one_body(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await publish(place, "1", "k")
        refused = await publish(place, "2", "k")
        assert (refused.status, refused.error) == (422, "this Idempotency-Key was used with another body")
        assert (await publish(place, "2", "k", "/api/v1/messages/publish")).status == 200, "a key is for one path"
        assert (await publish(place, "2", "x" * (KEY_CHARACTERS_MAX + 1))).status == 400

    run(tmp_path, test)


def test_a_repeat_waits_for_the_first_that_is_under_way(tmp_path: Path) -> None:
    store = ScriptedStore()

    async def test(place: Place) -> None:
        both = [asyncio.create_task(publish(place, "1", "k")) for _ in range(2)]
        while store.done is None:
            await asyncio.sleep(0)
        before = received(place)
        await place.get("/healthz")
        assert not any(task.done() for task in both)
        store.finish()
        answers = [await task for task in both]
        assert [each.json["retained"] for each in answers] == [1, 1]
        assert received(place) == before == 1

    run(tmp_path, test, store)


def test_what_was_refused_is_tried_again(tmp_path: Path) -> None:
    store = ScriptedStore()

    async def test(place: Place) -> None:
        store.trouble = "no space left"
        assert (await publish(place, "1", "k")).status == 503
        store.trouble = ""
        again = asyncio.create_task(publish(place, "1", "k"))
        while store.done is None:
            await asyncio.sleep(0)
        store.finish()
        assert (await again).status == 200

    run(tmp_path, test, store)


def test_a_repeat_that_waits_for_one_that_is_refused_is_done_itself() -> None:
    async def test() -> None:
        repeats = RepeatedRequests()
        begun, go_on = asyncio.Event(), asyncio.Event()
        done: list[str] = []

        async def fails() -> Answer:
            begun.set()
            await go_on.wait()
            raise ValueError("refused")

        async def succeeds() -> Answer:
            done.append("done")
            return Answer(text="1")

        key = ("ann", "token", "/p", "k")
        first = asyncio.create_task(repeats.answer(key, b"", fails))
        await begun.wait()
        others = [asyncio.create_task(repeats.answer(key, b"", succeeds)) for _ in range(3)]
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(ValueError, match="refused"):
            await first
        assert [await each for each in others] == [Answer(text="1")] * 3
        assert done == ["done"]

    asyncio.run(test())


def test_answers_are_kept_within_bounds() -> None:
    async def test() -> None:
        repeats = RepeatedRequests(answers_max=3, bytes_max=1_000)
        done: list[str] = []

        async def ask(name: str, size_bytes: int = 10) -> None:
            async def work() -> Answer:
                done.append(name)
                return Answer(text="x" * size_bytes)

            await repeats.answer(("ann", "token", "/p", name), b"", work)

        async def is_kept(name: str) -> bool:
            before = len(done)
            await ask(name)
            return len(done) == before

        for name in ("1", "2", "3", "4"):
            await ask(name)
        assert [await is_kept(name) for name in ("4", "3", "2")] == [True] * 3
        assert not await is_kept("1")
        await ask("large", 5_000)  # alone it is kept, and nothing beside it
        assert await is_kept("large")
        assert not await is_kept("4")
        assert await is_kept("4")

    asyncio.run(test())


def test_programs_at_the_unix_socket_share_their_keys(tmp_path: Path) -> None:
    """curl is a new process each time that it is called."""

    async def test(place: Place) -> None:
        for _ in range(2):
            program = await asyncio.create_subprocess_exec(sys.executable, "-c", REPEAT_BY_A_PROGRAM, str(place.path))
            assert await program.wait() == 0
        assert received(place) == 1

    run(tmp_path, test)
