"""The live tail: messages as they come, without ever holding more than a bound for a slow reader."""

import asyncio
from pathlib import Path

from aiohttp.test_utils import make_mocked_request

from embermq.http.resources.live.tail import WAITING_BYTES_MAX, WAITING_MESSAGES_MAX, Tail
from embermq.http.unread import UnreadAnswer
from embermq.http.view import View
from embermq.protocol.packets import Publish
from support.http_events import event
from support.http_place import Place, run
from support.transports import joined


def test_a_tail_shows_what_its_filter_matches(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        publisher = await joined(place.server, "p")
        async with place.session.get("http://localhost/api/v1/messages/tail", params={"filter": "a/#"}) as response:
            assert response.content_type == "text/event-stream"
            await response.content.readline()
            await publisher.send(
                Publish("b", b"1"), Publish("a/\u202e", b"\xff"), Publish("a/2", b"two", 1, packet_id=1)
            )
            assert await event(response) == (
                "message",
                {"topic": "a/\u202e", "payload_base64": "/w==", "payload_bytes": 1, "qos": 0, "retain": False},
            )
            assert (await event(response))[1]["payload"] == "two"
            assert place.server.core.subscription_count() == 1
        while place.server.core.subscription_count():
            await publisher.send(Publish("a/3", b"3"))
            await asyncio.sleep(0.01)
        assert place.service.places.count == 0

    run(tmp_path, test)


def test_what_a_slow_reader_does_not_take_is_left_out(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        publisher = await joined(place.server, "p")

        async def received(count: int) -> None:
            while place.server.core.counters.publish_received < count:
                await asyncio.sleep(0)

        unread = UnreadAnswer(place.service.unread, make_mocked_request("GET", "/"))
        with unread, Tail(View(place.service, None), "#", unread) as link:
            await publisher.send(*(Publish("a", b"1") for _ in range(WAITING_MESSAGES_MAX + 5)))
            await received(WAITING_MESSAGES_MAX + 5)
            messages, left_out = link.take()
            assert (len(messages), left_out) == (WAITING_MESSAGES_MAX, 5)
            for message in messages:
                link.sent(message)
            await publisher.send(*(Publish("a", bytes(WAITING_BYTES_MAX // 2 - 1)) for _ in range(4)))
            await received(WAITING_MESSAGES_MAX + 9)
            messages, left_out = link.take()
            assert (len(messages), left_out) == (2, 2)
            await publisher.send(Publish("a", b"12345"))  # what was taken and not sent still counts
            await received(WAITING_MESSAGES_MAX + 10)
            assert link.take() == ([], 1)
            assert place.service.unread.kept_bytes == WAITING_BYTES_MAX
        assert place.service.unread.kept_bytes == 0
        assert place.server.core.counters.dropped() == 0

    run(tmp_path, test)


def test_a_tail_is_no_member_of_a_share_group_and_ends_with_the_server(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        refused = await place.get("/api/v1/messages/tail", filter="$share/g/a")
        assert (refused.status, refused.error) == (422, "filter: a tail cannot be a member of a share group")
        async with place.session.get("http://localhost/api/v1/messages/tail") as response:
            await response.content.readline()
            place.service.stopping.set()
            await (await joined(place.server, "p")).send(Publish("a", b"1"))
            await asyncio.wait_for(response.content.read(), 60)

    run(tmp_path, test)
