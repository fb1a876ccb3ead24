"""What a session is owed goes to its link in runs. Random scripts are in tests/broker/test_runs.py."""

from embermq.broker.clock import Clock
from embermq.broker.counters import Counters
from embermq.broker.limits import Limits
from embermq.broker.outbound import READ_AHEAD, Outbound
from embermq.broker.window import WINDOW_START
from embermq.protocol.packets import PACKET_IDS, PUBACK, Delivery, Publish
from support.acknowledgements import acknowledgements, pubrec, pubrel
from support.core import Bench, ScriptedLink
from support.stores import MemoryQueue, ScriptedStore

LIMITS = Limits(queue_messages_max=100)


def queue_of(count: int, qos: int = 1) -> MemoryQueue:
    queue = MemoryQueue()
    for number in range(1, count + 1):
        queue.push(Publish("t", b"%d" % number, qos), number, qos, False)
    return queue


def outbound_of(queue: MemoryQueue, window: int = 10, clock: Clock | None = None) -> Outbound:
    return Outbound(queue, window, LIMITS, Counters(), clock or Clock())


def numbers_of(link: ScriptedLink) -> list[int]:
    return [int(payload) for payload in link.payloads()]


def test_a_run_fills_the_window_and_the_rest_waits() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink()
    outbound.pump(link)
    assert (numbers_of(link), link.sent_in_runs) == ([*range(1, 11)], 10)
    assert outbound.inflight.ids() == [*range(1, 11)]
    assert outbound.newest_sent() == 10
    for packet_id in (2, 3, 4, 5, 9):
        assert outbound.finish(packet_id, 1, 1) == 0
    outbound.pump(link)
    assert (numbers_of(link), link.sent_in_runs) == ([*range(11, 16)], 15)
    assert outbound.inflight.ids() == [1, 6, 7, 8, 10, 11, 12, 13, 14, 15]


def test_a_run_ends_where_the_client_reads_no_more() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink(room=6)
    outbound.pump(link)
    assert (numbers_of(link), outbound.inflight.ids()) == ([*range(1, 7)], [*range(1, 7)])
    link.room = 2
    outbound.pump(link)
    assert (numbers_of(link), outbound.inflight.ids()) == ([7, 8], [*range(1, 9)])


def test_a_link_may_take_one_message_at_a_time() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink()
    link.run_max = 1
    outbound.pump(link)
    assert (numbers_of(link), outbound.inflight.ids()) == ([*range(1, 11)], [*range(1, 11)])


def test_a_client_with_a_maximum_packet_size_gets_no_runs_and_what_is_too_large_counts_as_delivered() -> None:
    class SmallLink(ScriptedLink):
        def fits(self, delivery: Delivery) -> bool:
            [message] = delivery.messages
            return message.payload != b"3"

    counters = Counters()
    outbound, link = Outbound(queue_of(5), 10, LIMITS, counters, Clock()), SmallLink()
    link.maximum_packet_size = 100
    outbound.pump(link)
    assert (numbers_of(link), link.runs) == ([1, 2, 4, 5], [1] * 4)
    outbound.offer(link, [Publish("t", b"6", 1), Publish("t", b"3", 1), Publish("t", b"7", 1)], 1, False)
    assert (numbers_of(link), outbound.inflight.ids()) == ([6, 7], [1, 2, 4, 5, 6, 8])
    assert (counters.dropped_too_large, outbound.memory_bytes) == (2, 6 * 2)
    outbound.resume(link)
    assert [message.dup for message in link.take_messages()] == [True] * 6


def test_what_was_sent_before_a_restart_has_dup_and_what_follows_is_a_run() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink()
    outbound.sent_before = 3
    outbound.pump(link)
    sent = link.take_messages()
    assert [message.dup for message in sent] == [True] * 3 + [False] * 7
    assert link.runs == [3, 7]
    for message in sent:
        outbound.finish(message.packet_id, 1, 1)
    outbound.pump(link)
    assert [message.dup for message in link.take_messages()] == [False] * 10
    assert link.runs == [3, 7, 10]


def test_a_released_message_is_not_sent_again() -> None:
    queue = queue_of(10, qos=2)
    queue.release(5)
    outbound, link = outbound_of(queue), ScriptedLink()
    outbound.pump(link)
    packets = link.take()
    assert packets[4] == pubrel(5)
    assert [packet.packet_id for packet in packets if isinstance(packet, Publish)] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert link.runs == [4, 5]


def test_the_stored_queue_is_told_how_far_everything_is_acknowledged_and_no_further() -> None:
    queue = queue_of(3)
    outbound, link = outbound_of(queue), ScriptedLink()
    outbound.pump(link)
    for packet_id, done in ((2, 0), (1, 2), (3, 3)):
        assert outbound.finish(packet_id, 1, 1) == 0
        outbound.record_acknowledged()
        assert queue.acknowledged() == done


def test_a_new_message_does_not_overtake_what_is_sent_again() -> None:
    outbound, link = Outbound(None, 10, LIMITS, Counters(), Clock()), ScriptedLink()
    outbound.offer(link, [Publish("t", b"%d" % number, 1) for number in (1, 2, 3)], 1, False)
    again = ScriptedLink(room=0)
    outbound.resume(again)
    again.room = 100
    outbound.offer(again, [Publish("t", b"4", 1)], 1, False)
    outbound.pump(again)
    assert numbers_of(again) == [1, 2, 3, 4]


def test_a_message_that_has_expired_ends_a_run_and_is_dropped() -> None:
    clock = Clock()
    clock.set(0, 1_000)
    queue = queue_of(5)
    for number, expires_us in ((6, 999), (7, 9_999)):
        queue.push(Publish("t", b"%d" % number, 1, expires_us=expires_us), number, 1, False)
    outbound, link = outbound_of(queue, clock=clock), ScriptedLink()
    outbound.pump(link)
    assert numbers_of(link) == [1, 2, 3, 4, 5, 7]
    assert (outbound.dropped, link.runs) == (1, [5, 1])


def test_a_run_above_the_byte_bound_goes_message_by_message_and_only_one_exceeds_the_bound() -> None:
    large = [Publish("t", b"%d" % number * 400, 1) for number in range(1, 6)]
    limits = Limits(queue_messages_max=100, queue_bytes_max=1_000)
    outbound, link = Outbound(None, 10, limits, Counters(), Clock()), ScriptedLink()
    outbound.offer(link, large, 1, False)
    assert link.runs == [1, 1, 1]  # 401 bytes each: the third one exceeds the bound
    assert (outbound.memory_bytes, outbound.dropped) == (3 * 401, 2)


def test_an_identifier_in_flight_is_not_used_again() -> None:
    """The oldest message is never acknowledged: 65,535 places behind it the sending stops, in runs as without."""
    count = PACKET_IDS + 2 * READ_AHEAD
    newest = []
    for run_max in (512, 1):
        outbound = Outbound(queue_of(count), WINDOW_START, Limits(queue_messages_max=count), Counters(), Clock())
        link = ScriptedLink()
        link.run_max = run_max
        while True:
            outbound.pump(link)
            got = link.take_messages()
            if not got:
                break
            for message in got:
                assert message.packet_id == 1 or outbound.finish(message.packet_id, 1, 1) == 0
        assert (link.sent_in_runs > 0) == (run_max > 1)
        newest.append(outbound.newest_sent())
    assert newest == [PACKET_IDS, PACKET_IDS]


def test_with_messages_of_a_share_group_in_flight_there_are_no_runs() -> None:
    bench = Bench(ScriptedStore(late=False))
    reader = bench.join("r", clean=False, receive_maximum=8)
    bench.subscribed(reader, "$share/g/s", 1)
    bench.subscribed(reader, "t", 1)
    bench.publish("s", b"shared", qos=1)
    (shared,) = reader.take_messages()
    reader.room = 0
    for number in range(12):
        bench.publish("t", b"%d" % number, qos=1)
    reader.room = 1_000
    bench.core.writable(reader)
    bench.turn()
    own = reader.take_messages()
    assert ([int(message.payload) for message in own], reader.sent_in_runs) == ([*range(7)], 0)
    bench.send(reader, *acknowledgements(PUBACK, [shared.packet_id, *(message.packet_id for message in own)]))
    assert (numbers_of(reader), reader.sent_in_runs) == ([*range(7, 12)], 5)


def test_a_queue_is_drained_in_runs_at_qos_2_as_well() -> None:
    bench = Bench(ScriptedStore(late=False))
    reader = bench.join("r", clean=False)
    bench.subscribed(reader, "t", 2)
    bench.lose(reader)
    for number in range(30):
        bench.publish("t", b"%d" % number, qos=2)
    reader = bench.join("r", clean=False)
    messages = reader.take_messages()
    assert [int(message.payload) for message in messages] == [*range(30)]
    assert reader.sent_in_runs == 30
    bench.send(reader, *(pubrec(message.packet_id) for message in messages))
    assert reader.take() == [pubrel(message.packet_id) for message in messages]


def test_retained_messages_stay_runs_where_packet_identifiers_begin_again() -> None:
    """Pieces end at identifier 65,535, also if only few of a piece come before it."""
    bench = Bench(ScriptedStore(late=False))
    for number in range(300):
        bench.publish(f"r/{number:03}", b"%d" % number, qos=1, retain=True)
    for before_end in (200, 130, 2):
        reader = bench.join("r")
        assert reader.session is not None
        outbound = reader.session.outbound
        outbound.durable = outbound.fetched = PACKET_IDS - before_end
        bench.subscribed(reader, "r/#", 1)
        packet_ids: list[int] = []
        while len(packet_ids) < 300:
            messages = reader.take_messages()
            assert messages, f"{len(packet_ids)} came"
            packet_ids += [message.packet_id for message in messages]
            bench.send(reader, *acknowledgements(PUBACK, [message.packet_id for message in messages]))
        first = PACKET_IDS - before_end + 1
        assert packet_ids == [*range(first, PACKET_IDS + 1), *range(1, 301 - before_end)]
        assert reader.sent_in_runs == 300
        bench.lose(reader)
