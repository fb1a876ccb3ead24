"""The window of one client, and how long its queue may become."""

from pathlib import Path

from embermq.broker.limits import Limits
from embermq.broker.outbound import LOG_CHECK_MESSAGES, READ_AHEAD_MIN, WINDOW_START
from embermq.protocol.packets import Publish
from support.acknowledgements import puback
from support.core import Bench, DiskBench, ScriptedLink


def acknowledge(bench: Bench, link: ScriptedLink) -> int:
    """The client acknowledges all that it has got; returns how many messages that were."""
    got = link.take_messages()
    bench.send(link, *[puback(message.packet_id) for message in got])
    return len(got)


def waiting(count: int, **limits: int) -> tuple[Bench, ScriptedLink]:
    """A client that is owed some messages."""
    bench = Bench(limits=Limits(**limits))
    link = bench.join("c")
    bench.subscribed(link, "t", 1)
    for _ in range(count):
        bench.publish("t", b"x", qos=1)
    return bench, link


def test_the_window_grows_while_a_client_acknowledges_quickly() -> None:
    bench, link = waiting(8_000, inflight_max=2_500)
    assert [acknowledge(bench, link) for _ in range(4)] == [WINDOW_START, 2 * WINDOW_START, 4 * WINDOW_START, 2_500]


def test_the_window_does_not_grow_for_a_client_that_takes_its_time() -> None:
    bench, link = waiting(8_000)
    counts = []
    for _ in range(3):
        bench.pass_s(0.5)
        counts.append(acknowledge(bench, link))
    assert counts == [WINDOW_START] * 3


def test_the_window_shrinks_when_a_client_has_become_slow() -> None:
    bench, link = waiting(8_000)
    for _ in range(2):
        acknowledge(bench, link)
    counts = []
    for _ in range(4):
        bench.pass_s(2)
        counts.append(acknowledge(bench, link))
    assert counts == [4 * WINDOW_START, 2 * WINDOW_START, WINDOW_START, WINDOW_START]


def test_the_window_is_never_larger_than_the_receive_maximum_of_the_client() -> None:
    bench = Bench()
    link = bench.join("c", receive_maximum=600)
    bench.subscribed(link, "t", 1)
    for _ in range(2_000):
        bench.publish("t", b"x", qos=1)
    assert [acknowledge(bench, link) for _ in range(3)] == [WINDOW_START, 600, 600]


def test_a_persistent_queue_is_bounded_by_the_log_that_it_keeps(tmp_path: Path) -> None:
    """It may be longer than `queue_messages_max`: it has the log's messages, and no copies."""
    limits = Limits(queue_messages_max=10, queue_log_bytes_max=200_000)
    bench = DiskBench(tmp_path / "data", limits)
    link = bench.join("c", clean=False)
    bench.subscribe(link, "t", 1)
    bench.commit()
    bench.lose(link)
    publisher = bench.join("p")
    count = 3 * LOG_CHECK_MESSAGES
    for first in range(0, count, 256):
        numbers = range(first, first + 256)
        bench.send(publisher, *[Publish("t", b"%0100d" % n, 1, packet_id=n % 60_000 + 1) for n in numbers])
        bench.commit()
    dropped = bench.core.counters.dropped_queue_full
    assert 0 < dropped < count - LOG_CHECK_MESSAGES
    assert bench.core.connections.sessions["c"].outbound.dropped == dropped
    assert bench.core.counters.queues_long == 1
    back = bench.join("c", clean=False)
    got: list[bytes] = []
    while len(got) < count - dropped:
        bench.turn()
        messages = back.take_messages()
        assert messages
        got += [message.payload for message in messages]
        bench.send(back, *[puback(message.packet_id) for message in messages])
    assert got == [b"%0100d" % n for n in range(count - dropped)]
    bench.journal.close()


def test_little_is_read_ahead_for_a_client_with_a_small_window_and_nothing_when_it_has_left(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data")
    link = bench.join("c", clean=False, receive_maximum=1)
    bench.subscribe(link, "t", 1)
    bench.commit()
    link.take()
    for number in range(200):
        bench.publish("t", b"%03d" % number, qos=1)
    bench.commit()
    outbound = bench.core.connections.sessions["c"].outbound
    assert acknowledge(bench, link) == 1
    assert 0 < len(outbound.backlog) <= READ_AHEAD_MIN
    bench.lose(link)
    assert (len(outbound.backlog), outbound.memory_bytes) == (0, 4)  # the one in flight
    back = bench.join("c", clean=False, receive_maximum=1)
    got: list[bytes] = []
    while len(got) < 199:
        messages = back.take_messages()
        assert len(messages) == 1
        got.append(messages[0].payload)
        bench.send(back, puback(messages[0].packet_id))
    assert got == [b"%03d" % number for number in range(1, 200)]
    bench.journal.close()
