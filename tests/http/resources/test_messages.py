"""Messages of the log over HTTP, and the history of a retained message: by filter, offset and time."""

from pathlib import Path

import pytest

from embermq import Broker
from embermq.http.client import HttpClient, ServerRefusal
from embermq.http.resources.messages import LogMessage
from embermq.http.resources.topics.changes import RetainedChange
from support.ember_command import wire
from support.http_place import Place, run


def test_messages_are_found_by_filter_offset_and_time(tmp_path: Path) -> None:
    with Broker.in_thread(data=tmp_path / "data") as broker, HttpClient(tmp_path / "data" / "control.sock") as http:
        with wire(broker, "c") as client:
            for number in range(10):
                client.publish(f"a/{number % 2}", b"\xff" if number == 3 else b"%d" % number, qos=1)
        found = [LogMessage.model_validate(each) for each in http.lines("/api/v1/messages")]
        assert [message.payload for message in found] == ["0", "1", "2", None, "4", "5", "6", "7", "8", "9"]
        assert (found[3].payload_base64, found[3].qos, found[3].retain, found[3].client_id) == ("/w==", 1, False, "c")
        page = http.get("/api/v1/messages", filter="a/1", limit=2)
        assert [message["payload_bytes"] for message in page["items"]] == [1, 1]
        rest = http.get("/api/v1/messages", filter="a/1", cursor=page["next"])
        assert [message["payload"] for message in rest["items"]] == ["5", "7", "9"] and "next" not in rest
        after = found[6].offset
        assert [each["payload"] for each in http.lines("/api/v1/messages", from_offset=after)] == ["6", "7", "8", "9"]
        assert len(list(http.lines("/api/v1/messages", since=found[8].timestamp))) >= 2
        assert http.get("/api/v1/messages", until="1970-01-02") == {"items": []}
        assert http.get("/api/v1/messages", from_offset=10_000_000) == {"items": []}
        for status, query in (
            (422, {"since": "2999-01-01"}),
            (422, {"since": "2026-02-31"}),
            (422, {"since": "1d", "from_offset": "1"}),
            (400, {"from_offset": "-1"}),
            (400, {"filter": "a#"}),
        ):
            with pytest.raises(ServerRefusal) as refused:
                http.get("/api/v1/messages", **query)
            assert refused.value.status == status


def test_the_history_of_a_topic_and_the_past(tmp_path: Path) -> None:
    with Broker.in_thread(data=tmp_path / "data") as broker, HttpClient(tmp_path / "data" / "control.sock") as http:
        with wire(broker, "c") as client:
            for payload in (b"1", b"2", b"", b"3"):
                client.publish("a", payload, qos=1, retain=True)
        page = http.get("/api/v1/retained/history", topic="a", limit=3)
        changes = [RetainedChange.model_validate(each) for each in page["items"]]
        assert [change.message and change.message.payload for change in changes] == ["1", "2", None]
        rest = http.get("/api/v1/retained/history", topic="a", cursor=page["next"])
        assert [each["message"]["payload"] for each in rest["items"]] == ["3"] and "next" not in rest
        assert http.get("/api/v1/retained/history", topic="b") == {"items": []}
        first = http.get("/api/v1/retained/message", topic="a", as_of=changes[0].timestamp)
        assert first["payload"] == "1"
        assert [each["payload"] for each in http.lines("/api/v1/retained", as_of=changes[1].timestamp)] == ["2"]
        assert http.get("/api/v1/retained", as_of=changes[2].timestamp) == {"items": []}


def test_a_server_in_memory_has_no_log(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for path in ("/api/v1/messages", "/api/v1/retained/history?topic=a"):
            answer = await place.ask("GET", path)
            assert answer.status == 409 and answer.error.startswith("a store in memory keeps no ")

    run(tmp_path, test)
