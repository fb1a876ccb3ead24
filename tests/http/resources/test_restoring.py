"""A branch is set back to an instant: what differs is published again or cleared, and that can be taken back."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq import Broker
from embermq.http.client import HttpClient, ServerRefusal
from embermq.http.resources.restoring import SHOWN_MAX, TOGETHER_MAX, RestoreAnswer
from support.ember_command import wire
from support.http_place import Place, run
from support.wire import Wire

EXPIRY = b"\x02\x00\x00\x0e\x10"
"""A Message Expiry Interval of an hour."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[HttpClient, Wire]]:
    data = tmp_path / "data"
    with (
        Broker.in_thread(data=data) as broker,
        wire(broker, "device") as device,
        HttpClient(data / "control.sock") as http,
    ):
        yield http, device


def retained(http: HttpClient, topic_filter: str = "#") -> dict[str, str]:
    found = http.get("/api/v1/retained", filter=topic_filter, limit=1000)["items"]
    return {each["topic"]: each["payload"] for each in found}


def restore(http: HttpClient, topic_filter: str, as_of: str, *, dry_run: bool = False) -> RestoreAnswer:
    body = {"filter": topic_filter, "as_of": as_of, "dry_run": dry_run}
    return RestoreAnswer.model_validate_json(json.dumps(http.post("/api/v1/retained/restore", body)))


def set_all(http: HttpClient, values: dict[str, str], **more: Any) -> str:
    """Returns the instant before."""
    messages = [{"topic": topic, "payload": payload, **more} for topic, payload in values.items()]
    return str(http.post("/api/v1/retained/set", {"messages": messages})["undo_as_of"])


def test_a_branch_is_as_it_was_and_the_undo_brings_it_back(served: tuple[HttpClient, Wire]) -> None:
    http, device = served
    before = {"a/same": "1", "a/gone": "1", "a/changed": "1", "a/again": "1", "b/other": "1"}
    set_all(http, before)
    after = {"a/changed": "2", "a/again": "1", "a/new": "2", "b/other": "2"}
    then = set_all(http, after)
    device.publish("a/gone", b"", qos=1, retain=True)

    preview = restore(http, "a/#", then, dry_run=True)
    assert (preview.set, preview.cleared, preview.unchanged, preview.is_done) == (2, 1, 2, False)
    assert preview.changes is not None
    shown = [(each.topic, each.sign, each.now and each.now.payload, each.then and each.then.payload)
             for each in preview.changes]  # fmt: skip
    assert shown == [("a/changed", "~", "2", "1"), ("a/gone", "+", None, "1"), ("a/new", "-", "2", None)]
    assert retained(http)["a/changed"] == "2", "a dry run changes nothing"

    answer = restore(http, "a/#", then)
    assert (answer.set, answer.cleared, answer.unchanged, answer.refused, answer.is_done) == (2, 1, 2, 0, True)
    assert retained(http) == before | {"b/other": "2"}
    again = restore(http, "a/#", then)
    assert (again.set, again.cleared, again.undo_as_of) == (0, 0, None)

    assert answer.undo_as_of is not None
    restore(http, "a/#", answer.undo_as_of)
    assert retained(http) == {"a/same": "1", "a/changed": "2", "a/again": "1", "a/new": "2", "b/other": "2"}


def test_one_topic_gets_its_qos_and_properties_back_and_its_expiry_begins_again(
    served: tuple[HttpClient, Wire],
) -> None:
    http, _ = served
    properties = {"content_type": "text/plain", "message_expiry_interval": 3600, "user_properties": [["k", "v"]]}
    set_all(http, {"a": "1"}, qos=2, properties=properties)
    first = http.get("/api/v1/retained/message", topic="a")
    then = set_all(http, {"a": "2"})
    assert restore(http, "a", then).set == 1
    found = http.get("/api/v1/retained/message", topic="a")
    assert (found["payload"], found["qos"], found["properties"]) == ("1", 2, first["properties"])
    assert found["expires"] > first["expires"]


def test_a_large_branch_is_restored_in_groups_and_told_line_by_line(served: tuple[HttpClient, Wire]) -> None:
    http, _ = served
    topics = [f"a/{number:05}" for number in range(TOGETHER_MAX + 500)]
    set_all(http, dict.fromkeys(topics, "1"))
    cleared = http.post("/api/v1/retained/clear", {"filter": "a/#"})
    preview = restore(http, "a/#", cleared["undo_as_of"], dry_run=True)
    assert preview.changes is not None and (preview.set, len(preview.changes)) == (len(topics), SHOWN_MAX)
    lines = list(http.lines("/api/v1/retained/restore", {"filter": "#", "as_of": cleared["undo_as_of"]}))
    assert [(line["set"], line["is_done"]) for line in lines] == [(TOGETHER_MAX, False), (len(topics), True)]
    assert len(retained(http, "a/#")) == 1000


@pytest.mark.parametrize("verb", ["restore", "clear"])
def test_a_change_goes_on_when_its_reader_is_gone(served: tuple[HttpClient, Wire], tmp_path: Path, verb: str) -> None:
    http, _ = served
    topics = [f"a/{number:05}" for number in range(3 * TOGETHER_MAX)]
    then = set_all(http, dict.fromkeys(topics, "1"))
    body = json.dumps({"filter": "a/#"} if verb == "clear" else {"filter": "a/#", "as_of": then}).encode()
    with socket.socket(socket.AF_UNIX) as reader:
        reader.connect(str(tmp_path / "data" / "control.sock"))
        reader.sendall(
            b"POST /api/v1/retained/%s HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (verb.encode(), len(body), body)
        )
        assert reader.recv(1)
    deadline_s = time.monotonic() + 60
    while retained(http, "a/#"):
        assert time.monotonic() < deadline_s


def test_the_log_names_who_restored(served: tuple[HttpClient, Wire]) -> None:
    http, device = served
    device.publish("a", b"1", qos=1, retain=True)
    then = set_all(http, {"a": "2"})
    restore(http, "a", then)
    values = http.get("/api/v1/topic/values", topic="a")["items"]
    assert [(each["payload"], each["client_id"]) for each in values] == [
        ("1", "$operator"), ("2", "$operator"), ("1", "device"),
    ]  # fmt: skip


def test_what_cannot_be_restored_is_refused_before_anything_changes(
    tmp_path: Path, served: tuple[HttpClient, Wire]
) -> None:
    http, _ = served
    set_all(http, {"a": "1"})
    for as_of, status in (("2999-01-01", 422), ("yesterday", 400)):
        with pytest.raises(ServerRefusal) as refused:
            restore(http, "#", as_of)
        assert refused.value.status == status
    assert retained(http) == {"a": "1"}

    async def in_memory(place: Place) -> None:
        answer = await place.post("/api/v1/retained/restore", filter="#", as_of="1h")
        assert (answer.status, answer.error) == (409, "a store in memory keeps no history")
        assert "undo_as_of" not in (await place.set("a", "1")).json

    run(tmp_path, in_memory)
