"""A change that is sent again with the same Idempotency-Key is done once."""

import asyncio
from pathlib import Path
from typing import Any

from embermq.http.repeats import KEY_CHARACTERS_MAX
from support.http_place import Answered, Place, run
from support.stores import ScriptedStore


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
