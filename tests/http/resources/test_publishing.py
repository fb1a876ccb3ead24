"""Messages of an operator: published as a client would, with properties by name."""

from base64 import b64encode
from pathlib import Path

from embermq import Broker
from embermq.http.client import HttpClient
from support.ember_command import wire
from support.http_place import Place, run


def test_a_message_reaches_its_subscribers_and_is_retained_only_if_that_is_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        Broker.in_thread(data=data) as broker,
        wire(broker, "reader") as reader,
        HttpClient(data / "control.sock") as http,
    ):
        reader.subscribe(("a/#", 2))
        messages = [
            {"topic": "a/live", "payload": "text"},
            {"topic": "a/bytes", "payload_base64": b64encode(b"\xff\x00").decode(), "qos": 1},
            {"topic": "a/kept", "payload": "", "qos": 1, "retain": False},
            {"topic": "a/kept", "payload": "1", "qos": 2, "retain": True},
        ]
        answer = http.post("/api/v1/messages/publish", {"messages": messages})
        assert (answer["published"], answer["refused"]) == (4, []) and answer["undo_as_of"]
        got = [(each.topic_name, each.payload) for each in reader.take_messages()]
        assert sorted(got) == [("a/bytes", b"\xff\x00"), ("a/kept", b""), ("a/kept", b"1"), ("a/live", b"text")]
        assert [each["topic"] for each in http.get("/api/v1/retained")["items"]] == ["a/kept"]
        http.post("/api/v1/messages/publish", {"messages": [{"topic": "a/kept", "payload": "", "retain": True}]})
        assert http.get("/api/v1/retained")["items"] == []


def test_properties_are_given_by_name_or_as_bytes(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        properties = {
            "payload_format_indicator": 1,
            "message_expiry_interval": 60,
            "content_type": "application/json",
            "response_topic": "answers",
            "correlation_data_base64": b64encode(b"\xff").decode(),
            "user_properties": [["k", "v"], ["k", "w"]],
        }
        assert (await place.set("a", "1", properties=properties)).json == {"retained": 1, "refused": []}
        found = (await place.get("/api/v1/retained/message", topic="a")).json
        assert found["properties"] == properties
        again = await place.set("b", "1", properties_base64=found["properties_base64"])
        assert again.json["refused"] == []
        assert (await place.get("/api/v1/retained/message", topic="b")).json["properties"] == properties

    run(tmp_path, test)


def test_wrong_properties_are_refused_by_place(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for properties in (
            {"message_expiry_interval": 1 << 32},
            {"payload_format_indicator": 2},
            {"response_topic": "a/#"},
            {"content_type": "x" * 65_536},
            {"correlation_data": "x", "correlation_data_base64": "not base64"},
        ):
            answer = await place.post(
                "/api/v1/messages/publish", messages=[{"topic": "a", "payload": "1", "properties": properties}]
            )
            assert answer.status in (200, 400), properties
            if answer.status == 200:
                assert answer.json["refused"][0]["error"].startswith("properties: "), properties
        both = {"topic": "a", "payload": "1", "properties": {"content_type": "t"}, "properties_base64": "AQE="}
        answer = await place.post("/api/v1/messages/publish", messages=[both])
        expected = "properties: expected properties or properties_base64, one of them"
        assert answer.json["refused"] == [{"place": 0, "error": expected}]
        assert (await place.set("a", "1", retain=False)).error.startswith("messages.0.retain: expected True")

    run(tmp_path, test)
