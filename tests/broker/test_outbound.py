"""How long the queue of one client may become."""

from pathlib import Path

from embermq.broker.limits import Limits
from embermq.broker.outbound import LOG_CHECK_MESSAGES, READ_AHEAD_MIN
from embermq.protocol.packets import Publish
from support.acknowledgements import puback
from support.core import DiskBench


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
    (first,) = link.take_messages()
    bench.send(link, puback(first.packet_id))
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
