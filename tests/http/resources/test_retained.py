"""Retained messages over HTTP: paged, streamed, set and cleared, and answered when they are durable."""

import asyncio
import json
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.broker.limits import Limits
from embermq.http.client import HttpClient
from embermq.http.options import HttpOptions
from embermq.http.resources.message_models import RetainedMessage
from embermq.protocol.packets import Publish
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.memory import MemoryStore
from support.http_place import Place, run
from support.stores import ScriptedStore


def test_what_is_set_is_listed_page_by_page_and_cleared(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for number in range(5):
            answer = await place.set(f"a/{number}", f"ü{number}", qos=2)
            assert answer.json == {"retained": 1, "refused": []}
        first = await place.get("/api/v1/retained", filter="a/#", limit=2)
        assert [item["topic"] for item in first.json["items"]] == ["a/0", "a/1"]
        rest = await place.get("/api/v1/retained", filter="a/#", limit=3, cursor=first.json["next"])
        assert [item["payload"] for item in rest.json["items"]] == ["ü2", "ü3", "ü4"]
        assert "next" not in rest.json
        for item in rest.json["items"]:
            assert RetainedMessage.model_validate(item).qos == 2
        dry = await place.post("/api/v1/retained/clear", filter="a/+", dry_run=True)
        assert dry.json == {"cleared": 5, "is_done": False}
        assert (await place.post("/api/v1/retained/clear", filter="a/+")).json == {"cleared": 5, "is_done": True}
        assert (await place.get("/api/v1/retained")).json == {"items": []}

    run(tmp_path, test)


def test_one_message_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    properties = b"\x26\x00\x01k\x00\x01v\x03\x00\x01t\x09\x00\x01\xff"

    async def test(place: Place) -> None:
        body = {
            "topic": "a",
            "payload_base64": b64encode(b"\xff\x00").decode(),
            "properties_base64": b64encode(properties).decode(),
        }
        assert (await place.post("/api/v1/retained/set", messages=[body])).status == 200
        found = (await place.get("/api/v1/retained/message", topic="a")).json
        assert RetainedMessage.model_validate(found)
        assert (found["payload_base64"], found["payload_bytes"], found["client_id"]) == ("/wA=", 2, "$operator")
        assert found["properties"] == {
            "content_type": "t",
            "correlation_data_base64": "/w==",
            "user_properties": [["k", "v"]],
        }
        missing = await place.get("/api/v1/retained/message", topic="b")
        assert (missing.status, missing.error) == (404, "nothing is retained on this topic")

    run(tmp_path, test)


def test_refused_messages_are_named_by_their_place(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        messages = [{"topic": topic, "payload": "1"} for topic in ("a/1", "a/2", "b", "$SYS/x")]
        answer = await place.post("/api/v1/retained/set", messages=messages)
        assert answer.json["retained"] == 2
        assert [refused["place"] for refused in answer.json["refused"]] == [1, 3]
        assert answer.json["refused"][0]["error"] == "a/# holds 1 retained messages of at most 1"

    run(tmp_path, test, MemoryStore([RetainedBudget("a/#", count_max=1)]))


def test_nothing_is_answered_before_it_is_durable(tmp_path: Path) -> None:
    store = ScriptedStore()

    async def test(place: Place) -> None:
        waiting = asyncio.create_task(place.set("a", "1"))
        while store.done is None:
            await asyncio.sleep(0)
        await place.get("/healthz")
        assert not waiting.done()
        store.finish()
        assert (await waiting).json["retained"] == 1

    run(tmp_path, test, store)


def test_a_disk_that_fails_is_told_instead(tmp_path: Path) -> None:
    store = ScriptedStore()

    async def test(place: Place) -> None:
        waiting = asyncio.create_task(place.set("a", "1"))
        while store.done is None:
            await asyncio.sleep(0)
        store.trouble = "no space left"
        answer = await waiting
        assert (answer.status, answer.error) == (503, "not durable yet: no space left")
        refused = await place.set("b", "1")
        assert refused.status == 503 and "no space left" in refused.error
        ready = await place.get("/readyz")
        assert (ready.status, ready.error) == (503, "nothing can be made durable: no space left")
        assert (await place.get("/healthz")).json == {"status": "ok"}
        store.trouble = ""
        store.finish()
        assert (await place.get("/readyz")).json == {"status": "ready"}

    run(tmp_path, test, store)


def test_a_listing_waits_for_its_reader_and_no_other_waits(tmp_path: Path) -> None:
    store = ScriptedStore(late=False, queues=False)
    for number in range(4_000):
        store.append_publish(Publish(f"a/{number:04}", bytes(10_000), 0, True), "c")

    async def test(place: Place) -> None:
        async with place.session.get(
            "http://localhost/api/v1/retained", headers={"Accept": "application/x-ndjson"}, read_bufsize=1024
        ) as response:
            first = await response.content.read(1)
            for number in range(50):
                assert (await place.set(f"b/{number}", "1")).status == 200
            assert store.read.piece_messages < 1_000  # 40 MB wait to be read
            size_bytes = len(first)
            async for chunk in response.content.iter_any():
                size_bytes += len(chunk)
            assert size_bytes > 40_000_000

    run(tmp_path, test, store)


def test_payloads_are_cut_where_that_is_asked_for(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.set("a", "12345")
        (found,) = await place.lines("/api/v1/retained", payload_bytes=2)
        assert (found["payload"], found["payload_bytes"]) == ("12", 5)

    run(tmp_path, test)


def test_large_payloads_end_a_page_early(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for number in range(3):
            await place.set(f"a/{number}", "x" * 3_000_000)
        page = await place.get("/api/v1/retained")
        assert len(page.json["items"]) == 2
        rest = await place.get("/api/v1/retained", cursor=page.json["next"])
        assert [item["topic"] for item in rest.json["items"]] == ["a/2"]

    run(tmp_path, test)


def test_bad_requests_are_one_sentence(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for query, expected in (
            ({"filter": "a#"}, "filter: expected a topic filter: '#' does not occupy a whole level"),
            ({"filter": ""}, "filter: expected a topic filter: empty topic filter"),
            ({"filter": "x" * 70_000}, "filter: expected a topic filter: longer than 65535 bytes"),
            ({"as_of": "yesterday"}, "as_of: expected an instant such as"),
            ({"limit": "0"}, "limit: expected greater than or equal to 1"),
            ({"limit": "1_0"}, "limit: expected a number that is not negative"),
            ({"limit": "100000"}, "limit: expected less than or equal to 1000"),
            ({"other": "1"}, "there is no parameter 'other'"),
        ):
            answer = await place.get("/api/v1/retained", **query)
            assert answer.status == 400 and answer.error.startswith(expected), answer.error
        twice = await place.ask("GET", "/api/v1/retained?filter=a&filter=b")
        assert (twice.status, twice.error) == (400, "filter is given twice")
        assert (await place.get("/api/v1/retained", as_of="1d")).status == 409  # a store in memory
        assert (await place.get("/api/v1/retained", as_of="2999-01-01")).status == 422

    run(tmp_path, test)


def test_bad_bodies_are_one_sentence(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for body, expected in (
            (b"", "expected a JSON object as the body"),
            (b"[]", "expected"),
            (b"{", "expected a JSON object as the body"),
            (b'{"messages":[{"topic":"a"}]}', "messages.0: expected payload or payload_base64, one of them"),
            (b'{"messages":[{"topic":"a","payload":""}]}', "messages.0: expected a payload that is not empty"),
            (b'{"messages":[{"topic":"+","payload":"1"}]}', "messages.0.topic: expected a topic name: wildcard"),
            (b'{"messages":[{"topic":"\\ud800","payload":"1"}]}', "expected a JSON object"),
            (b'{"messages":[{"topic":"a","payload_base64":"?"}]}', "messages.0.payload_base64: expected base64"),
            (b'{"messages":[{"topic":"a","payload":"1","qos":3}]}', "messages.0.qos: expected less than or equal to 2"),
            (b'{"messages":[{"topic":"a","payload":"1","qos":true}]}', "messages.0.qos: expected a valid integer"),
        ):
            answer = await place.ask(
                "POST", "/api/v1/retained/set", data=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status == 400 and answer.error.startswith(expected), (body, answer.error)
        answer = await place.ask("POST", "/api/v1/retained/set", data=b"{}", headers={"Content-Type": "text/plain"})
        assert (answer.status, answer.error) == (415, "expected a body with Content-Type: application/json")

    run(tmp_path, test)


def test_a_body_that_is_too_large_is_not_gathered(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        answer = await place.set("a", "x" * 3_000_000)
        assert (answer.status, answer.error) == (413, "the request is larger than limits.packet_bytes_max allows")

    run(tmp_path, test, limits=Limits(packet_bytes_max=1_000))


def test_the_log_has_the_name_of_the_login_that_changed_a_topic(tmp_path: Path) -> None:
    token = write_token(tmp_path / "tokens", "ann", "operator")
    data = tmp_path / "data"
    http = HttpOptions(port=0, token_file=tmp_path / "tokens")
    with Broker.in_thread(data=data, http=http) as broker, HttpClient(data / "control.sock") as local:

        def post(path: str, body: dict[str, Any]) -> None:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            url = f"http://127.0.0.1:{broker.http_port}{path}"
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
                assert answer.status == 200

        local.post("/api/v1/retained/set", {"messages": [{"topic": "a", "payload": "by a command"}]})
        post("/api/v1/retained/set", {"messages": [{"topic": "a", "payload": "by ann"}]})
        assert local.get("/api/v1/retained/message", topic="a")["client_id"] == "$operator/ann"
        post("/api/v1/retained/clear", {"filter": "a"})
        values = local.get("/api/v1/topic/values", topic="a")["items"]
        senders = [(value["payload"], value["client_id"]) for value in values]
        assert senders == [("", "$operator/ann"), ("by ann", "$operator/ann"), ("by a command", "$operator")]
