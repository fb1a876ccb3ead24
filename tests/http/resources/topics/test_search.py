"""A search in the topic tree: by filter and by word, page by page, also in the past."""

from pathlib import Path
from typing import Any

from embermq import Broker
from embermq.http.client import HttpClient
from embermq.http.resources.message_models import RetainedMessage
from support.ember_command import wire
from support.http_place import Place, run


async def found(place: Place, **query: Any) -> list[str]:
    """All topics, from as many pages as it takes."""
    topics: list[str] = []
    while True:
        answer = await place.get("/api/v1/tree/search", **query)
        assert answer.status == 200, answer.json
        topics += [RetainedMessage.model_validate(each).topic for each in answer.json["items"]]
        assert len(answer.json["items"]) <= query.get("limit", 100)
        if "next" not in answer.json:
            return topics
        query["cursor"] = answer.json["next"]


def test_topics_are_found_by_filter_and_by_word(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for topic in ("plant/7/Temp", "plant/7/temp/x", "plant/8/temp", "other", "plant/8/<b>"):
            await place.set(topic, "1")
        for limit in (1, 2, 100):
            by_word = await found(place, word="temp", limit=limit)
            assert by_word == ["plant/7/Temp", "plant/7/temp/x", "plant/8/temp"]
            assert await found(place, filter="plant/+/temp", limit=limit) == ["plant/8/temp"]
            assert await found(place, filter="plant/8/#", limit=limit) == ["plant/8/<b>", "plant/8/temp"]
        assert await found(place, word="<b>") == ["plant/8/<b>"]
        assert await found(place, word="nowhere") == []

    run(tmp_path, test)


def test_expected_is_one_of_filter_and_word(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for query in ({}, {"filter": "#", "word": "a"}):
            refused = await place.get("/api/v1/tree/search", **query)
            assert (refused.status, refused.error) == (422, "filter and word: expected one of them")
        for query in ({"word": ""}, {"word": "a\0"}, {"word": "x" * 1_001}, {"filter": "a#"}):
            assert (await place.get("/api/v1/tree/search", **query)).status == 400
        assert (await place.get("/api/v1/tree/search", word="a", as_of="1h")).status == 409

    run(tmp_path, test)


def test_the_past_is_searched(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker.in_thread(data=data) as broker, wire(broker, "c") as client, HttpClient(data / "control.sock") as http:
        client.publish("a/temp", b"1", qos=1, retain=True)
        then = http.get("/api/v1/retained/message", topic="a/temp")["timestamp"]
        client.publish("a/temp", b"", qos=1, retain=True)
        client.publish("b/temp", b"1", qos=1, retain=True)
        for query in ({"word": "temp"}, {"filter": "+/temp"}):
            assert [each["topic"] for each in http.get("/api/v1/tree/search", **query)["items"]] == ["b/temp"]
            past = http.get("/api/v1/tree/search", as_of=then, **query)["items"]
            assert [each["topic"] for each in past] == ["a/temp"]
