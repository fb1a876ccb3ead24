"""What one session has in memory is bounded in bytes, whatever its client reads and acknowledges."""

from typing import Any

import pytest

from embermq.broker.limits import Limits
from embermq.protocol.packets import Puback, Publish
from embermq.store.memory import MemoryStore
from support.core import Bench, ScriptedLink

KIB = 1024


@pytest.fixture(params=[False, True], ids=["memory", "lasting"])
def lasting(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def subscribed(lasting: bool, **options: Any) -> tuple[Bench, ScriptedLink]:
    bench = Bench(MemoryStore(queues=lasting), Limits(queue_bytes_max=100 * KIB))
    client = bench.join("c", clean=False, **options)
    bench.subscribed(client, "t", 1)
    return bench, client


def in_memory(bench: Bench) -> int:
    [session] = bench.core.sessions()
    outbound = session.outbound
    waiting = [] if outbound.queue is not None else list(outbound.backlog)
    return sum(len(queued.message.payload) for queued in [*outbound.inflight.values(), *waiting])


def test_large_messages_that_are_not_acknowledged_close_the_window_early(lasting: bool) -> None:
    bench, client = subscribed(lasting)
    for n in range(50):
        bench.publish("t", b"%02d" % n + bytes(10 * KIB), 1)
    got = client.take_messages()
    assert len(got) == 10
    assert in_memory(bench) <= 111 * KIB
    dropped = bench.core.counters.dropped_queue_full
    assert dropped == (0 if lasting else 40)
    bench.send(client, *[Puback(message.packet_id) for message in got])
    for n in range(50, 60):
        bench.publish("t", b"%02d" % n + bytes(10 * KIB), 1)
    while more := client.take_messages():
        got += more
        bench.send(client, *[Puback(message.packet_id) for message in more])
    wanted = range(60) if lasting else [*range(10), *range(50, 60)]
    assert [int(message.payload[:2]) for message in got] == list(wanted)


def test_the_queue_of_a_client_that_is_away_is_bounded_in_bytes_where_it_is_in_memory(lasting: bool) -> None:
    bench, client = subscribed(lasting)
    bench.lose(client)
    for n in range(50):
        bench.publish("t", b"%02d" % n + bytes(10 * KIB), 1)
    assert in_memory(bench) <= 111 * KIB
    assert bench.core.counters.dropped_queue_full == (0 if lasting else 40)


def test_one_message_goes_however_large(lasting: bool) -> None:
    bench, client = subscribed(lasting)
    for n in range(3):
        bench.publish("t", b"%d" % n + bytes(200 * KIB), 1)
        [message] = client.take_messages()
        assert message.payload[:1] == b"%d" % n
        bench.send(client, Puback(message.packet_id))
    assert bench.core.counters.dropped_queue_full == 0


def test_a_client_that_is_back_gets_its_window_again_as_fast_as_it_reads(lasting: bool) -> None:
    bench, client = subscribed(lasting)
    for n in range(8):
        bench.publish("t", b"%d" % n, 1)
    assert len(client.take_messages()) == 8
    bench.lose(client)
    bench.publish("t", b"8", 1)
    client = bench.join("c", clean=False, room=3)
    again = client.take_messages()
    assert [(message.payload, message.dup) for message in again] == [(b"0", True), (b"1", True), (b"2", True)]
    # What comes meanwhile must wait, and an acknowledgement of what was to come again is heeded.
    bench.publish("t", b"9", 1)
    bench.send(client, Puback(5))
    assert client.take_messages() == []
    client.room = 100
    bench.core.writable(client)
    bench.turn()
    assert [(message.payload, message.dup) for message in client.take_messages()] == [
        (b"3", True),
        (b"5", True),
        (b"6", True),
        (b"7", True),
        (b"8", False),
        (b"9", False),
    ]


def test_acknowledged_messages_weigh_nothing(lasting: bool) -> None:
    bench, client = subscribed(lasting)
    for _ in range(500):
        bench.send(client, Publish("t", bytes(KIB), 1, packet_id=1))
        [message] = client.take_messages()
        bench.send(client, Puback(message.packet_id))
    assert bench.core.counters.dropped_queue_full == 0
