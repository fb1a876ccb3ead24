"""The topic tree over HTTP: levels, counts, instants and what changed between two of them."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from embermq import Broker
from embermq.http import view
from embermq.http.client import HttpClient
from embermq.http.resources.topics import level_messages
from embermq.http.resources.topics.tree import TreePage
from embermq.http.store_reads import answered
from embermq.store.history.pieces import HistoryPiece
from embermq.store.topic_tree import Moments, TreeLevel, TreeWalk
from support.ember_command import wire
from support.http_place import Place, run
from support.stores import ScriptedRetained, ScriptedStore


async def levels(place: Place, **query: Any) -> list[Any]:
    answer = await place.get("/api/v1/tree", **query)
    assert answer.status == 200, answer.json
    TreePage.model_validate(answer.json)
    return list(answer.json["items"])


def test_a_branch_is_opened_level_by_level(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for topic in ("plant", "plant/7/temp", "plant/7/hum", "/x", "<img src=x onerror=alert(1)>/a", "$own/a"):
            await place.set(topic, "ü" * 200)
        found = await levels(place, payload_bytes=3)
        assert [(each["level"], each["topic"], each["topics"], each["has_children"]) for each in found] == [
            ("", "", 1, True),
            ("$own", "$own", 1, True),
            ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>", 1, True),
            ("plant", "plant", 3, True),
        ]
        assert found[0]["message"] is None and found[0]["change"] is None
        assert (found[3]["message"]["payload"], found[3]["message"]["payload_bytes"]) == ("ü", 400)
        assert [each["topic"] for each in await levels(place, below="plant")] == ["plant/7"]
        leaves = await levels(place, below="plant/7")
        assert [(each["topic"], each["has_children"]) for each in leaves] == [
            ("plant/7/hum", False),
            ("plant/7/temp", False),
        ]
        assert [each["topic"] for each in await levels(place, below="")] == ["/x"]
        assert await levels(place, below="nothing") == []

    run(tmp_path, test)


def test_a_level_comes_page_by_page(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for topic in ("/first", "a", "a/1", "b/1", "c"):
            await place.set(topic, "1")
        found: list[str] = []
        query: dict[str, Any] = {"limit": 1}
        while True:
            answer = (await place.get("/api/v1/tree", **query)).json
            found += [each["level"] for each in answer["items"]]
            if "next" not in answer:
                break
            query["cursor"] = answer["next"]
        assert found == ["", "a", "b", "c"]

    run(tmp_path, test)


def test_a_page_ends_when_payloads_have_filled_it(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for number in range(4):
            await place.set(f"a{number}", "x" * 3_000_000)
        answer = (await place.get("/api/v1/tree")).json
        assert [each["level"] for each in answer["items"]] == ["a0", "a1"]
        rest = await place.get("/api/v1/tree", cursor=answer["next"])
        assert [each["level"] for each in rest.json["items"]] == ["a2", "a3"]

    run(tmp_path, test)


def test_branches_are_counted(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for topic in ("a", "a/1", "a/1/x", "ab", "/x"):
            await place.set(topic, "1")
        for below, expected in (("a", 3), ("a/1", 2), ("", 1), ("none", 0), ("a/1/x", 1)):
            assert (await place.get("/api/v1/tree/count", below=below)).json == {"topics": expected}
        assert (await place.get("/api/v1/tree/count")).json == {"topics": 5}

    run(tmp_path, test)


def test_bad_questions_are_refused(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for path in ("/api/v1/tree", "/api/v1/tree/count"):
            assert (await place.get(path, below="a/#")).status == 400
            assert (await place.get(path, as_of="tomorrow")).status == 400
            refused = await place.get(path, as_of="1h")
            assert (refused.status, refused.error) == (409, "a store in memory keeps no history")
            assert (await place.get(path, compare_with="1h")).status == 409
            future = await place.get(path, compare_with=f"{time.time() + 1000:.0f}")
            assert future.error == "compare_with: expected an instant between 1970 and now"

    run(tmp_path, test)


def test_the_tree_of_then_and_what_has_changed_since(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker.in_thread(data=data) as broker, wire(broker, "c") as client, HttpClient(data / "control.sock") as http:
        for topic in ("a/same", "a/gone", "a/other", "b/gone"):
            client.publish(topic, b"1", qos=1, retain=True)
        then = http.get("/api/v1/retained/message", topic="b/gone")["timestamp"]
        for topic, payload in (("a/gone", b""), ("b/gone", b""), ("a/other", b"2"), ("a/new/deep", b"1")):
            client.publish(topic, payload, qos=1, retain=True)

        past = http.get("/api/v1/tree", as_of=then)
        assert [(each["level"], each["topics"]) for each in past["items"]] == [("a", 3), ("b", 1)]
        assert past["begins"] <= then
        assert [each["level"] for each in http.get("/api/v1/tree")["items"]] == ["a"]
        assert http.get("/api/v1/tree", as_of="1h")["items"] == []

        roots = http.get("/api/v1/tree", compare_with=then)["items"]
        assert [(each["topics"], each["change"]) for each in roots] == [
            (3, {"appeared": 1, "changed": 1, "vanished": 1}),
            (0, {"appeared": 0, "changed": 0, "vanished": 1}),
        ]
        leaves = http.get("/api/v1/tree", below="a", compare_with=then)["items"]
        shown = [(each["level"], each["sign"], text_of(each["message"]), text_of(each["other"])) for each in leaves]
        assert shown == [
            ("gone", "-", None, "1"),
            ("new", "", None, None),
            ("other", "~", "2", "1"),
            ("same", "", "1", "1"),
        ]
        back = http.get("/api/v1/tree", below="a", as_of=then, compare_with="now")["items"]
        assert [each["sign"] for each in back] == ["+", "", "~", ""]
        count = {"topics": 3, "change": {"appeared": 1, "changed": 1, "vanished": 1}}
        assert http.get("/api/v1/tree/count", below="a", compare_with=then) == count
        assert http.get("/api/v1/tree/count", as_of=then) == {"topics": 4}


def test_the_values_of_a_level_are_read_together_and_not_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = answered

    async def counted(*given: Any) -> HistoryPiece:
        piece = await read(*given)
        reads.append(len(piece.retained))
        return piece

    def refuse(*given: Any) -> None:
        raise AssertionError("a single read on the event loop")

    monkeypatch.setattr(level_messages, "answered", counted)
    monkeypatch.setattr(view, "retained_message", refuse)
    data = tmp_path / "data"
    names = sorted([f"a/{number}" for number in range(300)] + [f"a/{number}/below" for number in range(0, 300, 7)])
    with Broker.in_thread(data=data) as broker, wire(broker, "c") as client, HttpClient(data / "control.sock") as http:
        messages = [{"topic": name, "payload": name} for name in [*names, "$own"]]
        http.post("/api/v1/retained/set", {"messages": messages})
        then = f"{time.time():.6f}"
        client.publish("a/299", b"", qos=1, retain=True)
        for query in ({}, {"as_of": then}):
            reads.clear()
            found: dict[str, Any] = {}
            cursor: dict[str, str] = {}
            while True:
                page = http.get("/api/v1/tree", below="a", limit=150, **query, **cursor)
                found |= {item["topic"]: text_of(item["message"]) for item in page["items"]}
                if "next" not in page:
                    break
                cursor = {"cursor": page["next"]}
            wanted = {f"a/{number}" for number in range(300 if query else 299)}
            assert {topic: value for topic, value in found.items() if value is not None} == {n: n for n in wanted}
            assert len(reads) <= 300 // level_messages.READ_TOPICS + 4
        roots = {item["topic"]: text_of(item["message"]) for item in http.get("/api/v1/tree")["items"]}
        assert roots == {"$own": "$own", "a": None}


class EndlessWalk(TreeWalk):
    """Never comes to an end."""

    def step(self) -> list[TreeLevel]:
        return []

    def is_done(self) -> bool:
        return False

    def is_exhausted(self) -> bool:
        return False

    def position(self) -> str:
        return ""


@pytest.mark.parametrize("query", ["", "?as_of=1h"])
def test_a_walk_stops_when_its_client_is_gone(tmp_path: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[TreeWalk] = []

    def endless(
        retained: ScriptedRetained, below: str | None, position: str, moments: Moments, work_max: int
    ) -> TreeWalk:
        walks.append(EndlessWalk())
        return walks[-1]

    monkeypatch.setattr(ScriptedRetained, "levels", endless)

    async def test(place: Place) -> None:
        before = asyncio.all_tasks()
        _, writer = await asyncio.open_unix_connection(place.path)
        writer.write(f"GET /api/v1/tree{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while not walks:
            await asyncio.sleep(0)
        assert asyncio.all_tasks() > before
        writer.close()
        while asyncio.all_tasks() > before:  # else the test ends by its time limit
            await asyncio.sleep(0)
        assert len(walks) == 1

    run(tmp_path, test, ScriptedStore(late=False), log_directory=tmp_path / "log")


def text_of(message: Any) -> Any:
    return None if message is None else message["payload"]
