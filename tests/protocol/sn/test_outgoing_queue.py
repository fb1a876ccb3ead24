"""The queue of messages to one client is bounded in number and bytes."""

from embermq.protocol import packets as core
from embermq.protocol.sn.outgoing import QUEUE_BYTES_MAX, OutgoingQueue
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import B
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    ELSEWHERE,
    Harness,
)


@ALL
def test_what_waits_for_a_client_is_bounded_in_bytes_awake_and_asleep(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    taken = [connection.deliver(core.Delivery([core.Publish("a/b", bytes(60_000))])) for _ in range(100)]
    assert 0 < sum(taken) <= 9
    assert harness.engine.counters.dropped_waiting_full == 100 - sum(taken)
    assert not connection.has_room()
    sleeper = harness.connect(profile, "dev2", ELSEWHERE)
    harness.ask(sleeper, sn.sleepreq(1, 60) if profile is B else sn.disconnect(session_expiry_s=60))
    kept = [sleeper.deliver(core.Delivery([core.Publish("a/b", bytes(60_000))])) for _ in range(100)]
    assert 0 < sum(kept) <= 9
    assert harness.engine.counters.dropped_sleeping_full == 100 - sum(kept)


def test_messages_come_out_in_order_and_one_that_is_put_back_comes_first() -> None:
    queue = OutgoingQueue()
    for payload in (b"1", b"2"):
        queue.put(core.Publish("a", payload))
    first = queue.take()
    queue.put_back(first)
    assert queue.first() is first
    assert [queue.take().payload for _ in range(len(queue))] == [b"1", b"2"]
    assert queue.size == 0


def test_one_message_always_fits_and_the_next_only_within_the_bytes() -> None:
    queue = OutgoingQueue()
    large = core.Publish("a", bytes(QUEUE_BYTES_MAX))
    assert queue.fits(large, 1)
    queue.put(large)
    assert not queue.fits(core.Publish("a", b""), 10)
    queue.take()
    queue.put(core.Publish("a", bytes(QUEUE_BYTES_MAX - 3)))
    assert queue.fits(core.Publish("a", b"x"), 10)
    assert not queue.fits(core.Publish("a", b"xy"), 10)


def test_a_queue_is_bounded_in_number() -> None:
    queue = OutgoingQueue()
    queue.put(core.Publish("a", b""))
    assert not queue.fits(core.Publish("a", b""), 1)
