"""The newest message of each topic at every interval, for many readers from one subscription."""

import asyncio
from pathlib import Path

import pytest

from embermq.http.resources.live.latest import PAYLOAD_BYTES, TOPICS_MAX, LatestLink
from embermq.protocol.packets import Delivery, Publish
from support.http_events import event
from support.http_place import Place, run
from support.transports import joined

PATH = "http://localhost/api/v1/messages/latest"


def test_an_event_has_the_newest_message_of_each_topic(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        publisher = await joined(place.server, "p")
        async with place.session.get(PATH, params={"filter": "a/#", "every_ms": "100"}) as response:
            assert response.content_type == "text/event-stream"
            await response.content.readline()
            messages = [Publish("a/1", b"%d" % number) for number in range(5)]
            await publisher.send(*messages, Publish("a/2", b"\xff", 1, packet_id=1, retain=True), Publish("b", b""))
            kind, found = await event(response)
            assert (kind, found["total"], found["left_out"]) == ("latest", 6, 0)
            assert found["since"] < found["until"]
            assert found["items"] == [
                {"topic": "a/1", "count": 5, "payload": "4", "payload_bytes": 1, "qos": 0, "retain": False},
                {"topic": "a/2", "count": 1, "payload_base64": "/w==", "payload_bytes": 1, "qos": 1, "retain": True},
            ]
        while place.server.core.subscription_count():
            await publisher.send(Publish("a/3", b"3"))
            await asyncio.sleep(0.01)
        assert place.service.page_places.count == 0 and not place.service.latest_views

    run(tmp_path, test)


def test_thirty_pages_share_one_subscription(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        publisher = await joined(place.server, "p")
        responses = [await place.session.get(PATH, params={"every_ms": "100"}) for _ in range(30)]
        for response in responses:
            assert response.status == 200
            await response.content.readline()
        assert place.server.core.subscription_count() == 1 and place.service.page_places.count == 30
        await publisher.send(Publish("a", b"1"))
        for response in responses:
            assert (await event(response))[1]["items"][0]["topic"] == "a"
            response.close()

    run(tmp_path, test)


def test_only_so_many_topics_and_so_much_of_a_payload(tmp_path: Path) -> None:
    link = LatestLink()
    for number in range(TOPICS_MAX + 5):
        link.deliver(Delivery([Publish(f"{number}", b"x" * (2 * PAYLOAD_BYTES))]))
    link.deliver(Delivery([Publish("0", b"again")]))
    newest, total, left_out = link.take()
    assert (len(newest), total, left_out) == (TOPICS_MAX, TOPICS_MAX + 6, 5)
    assert (newest["0"].payload, newest["0"].count) == (b"again", 2)
    assert (len(newest["1"].payload), newest["1"].payload_bytes) == (PAYLOAD_BYTES, 2 * PAYLOAD_BYTES)
    assert link.take() == ({}, 0, 0)


@pytest.mark.parametrize(
    ("query", "status"),
    [({"filter": "$share/g/a"}, 422), ({"filter": "a#"}, 400), ({"every_ms": "99"}, 400), ({"every_ms": "1e3"}, 400)],
)
def test_bad_questions_are_refused(tmp_path: Path, query: dict[str, str], status: int) -> None:
    async def test(place: Place) -> None:
        assert (await place.get("/api/v1/messages/latest", **query)).status == status

    run(tmp_path, test)
