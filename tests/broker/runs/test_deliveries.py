"""Runs of deliveries: sent as single messages would be. Random scripts are in test_shortcuts.py."""

from embermq.broker.counters import Counters
from embermq.broker.queues.clock import Clock
from embermq.broker.queues.outbound import READ_AHEAD, WINDOW_START, Outbound
from embermq.broker.runs.deliveries import RUN_MIN
from embermq.protocol.acknowledgements import Acknowledgements
from embermq.protocol.packets import PUBACK, Publish, Pubrec, Pubrel
from embermq.store.interface import PACKET_IDS
from embermq.store.memory import MemoryQueue
from support.core import Bench, ScriptedLink
from support.stores import ScriptedStore


def queue_of(count: int, qos: int = 1) -> MemoryQueue:
    queue = MemoryQueue()
    for number in range(1, count + 1):
        queue.push(Publish("t", b"%d" % number, qos), number, qos, False)
    return queue


def outbound_of(queue: MemoryQueue, window: int = 10, clock: Clock | None = None) -> Outbound:
    return Outbound(queue, window, 100, Counters(), clock=clock)


def numbers_of(link: ScriptedLink) -> list[int]:
    return [int(payload) for payload in link.payloads()]


def test_a_run_fills_the_window_and_the_rest_waits() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink()
    outbound.pump(link, True)
    assert (numbers_of(link), link.sent_in_runs) == ([*range(1, 11)], 10)
    assert outbound.inflight.ids() == [*range(1, 11)]
    assert outbound.newest_sent() == 10
    for packet_id in (2, 3, 4, 5, 9):
        assert outbound.puback(packet_id)
    outbound.pump(link, True)
    assert (numbers_of(link), link.sent_in_runs) == ([*range(11, 16)], 15)
    assert outbound.inflight.ids() == [1, 6, 7, 8, 10, 11, 12, 13, 14, 15]


def test_without_being_asked_for_there_are_no_runs() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink()
    outbound.pump(link)
    assert (numbers_of(link), link.sent_in_runs) == ([*range(1, 11)], 0)


def test_a_few_messages_are_no_run() -> None:
    outbound, link = outbound_of(queue_of(RUN_MIN - 1)), ScriptedLink()
    outbound.pump(link, True)
    assert (len(link.got), link.sent_in_runs) == (RUN_MIN - 1, 0)


def test_a_run_ends_where_the_client_reads_no_more() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink(room=6)
    outbound.pump(link, True)
    assert (numbers_of(link), outbound.inflight.ids()) == ([*range(1, 7)], [*range(1, 7)])
    link.room = 2
    outbound.pump(link, True)
    assert (numbers_of(link), outbound.inflight.ids()) == ([7, 8], [*range(1, 9)])


def test_a_link_without_runs_gets_the_messages_one_by_one() -> None:
    class PlainLink(ScriptedLink):
        offered = 0

        def deliver_all(self, deliveries: object) -> int:
            self.offered += 1
            return 0

    outbound, link = outbound_of(queue_of(25)), PlainLink()
    outbound.pump(link, True)
    assert numbers_of(link) == [*range(1, 11)]
    assert link.offered == 1, "looking for a run before each message would take long"


def test_what_was_sent_before_a_restart_has_dup_and_what_follows_is_a_run() -> None:
    outbound, link = outbound_of(queue_of(25)), ScriptedLink()
    outbound.sent_before = 3
    outbound.pump(link, True)
    sent = link.take_messages()
    assert [message.dup for message in sent] == [True] * 3 + [False] * 7
    assert link.sent_in_runs == 0
    for message in sent:
        outbound.puback(message.packet_id)
    outbound.pump(link, True)
    assert [message.dup for message in link.take_messages()] == [False] * 10
    assert link.sent_in_runs == 10


def test_a_released_message_is_not_sent_again() -> None:
    queue = queue_of(10, qos=2)
    queue.release(5)
    outbound, link = outbound_of(queue), ScriptedLink()
    outbound.pump(link, True)
    packets = link.take()
    assert packets[4] == Pubrel(5)
    assert [packet.packet_id for packet in packets if isinstance(packet, Publish)] == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert link.sent_in_runs == 4


def test_a_message_that_has_expired_ends_a_run_and_is_dropped() -> None:
    clock = Clock()
    clock.now_us = 1_000
    queue = queue_of(5)
    for number, expires_us in ((6, 999), (7, 9_999)):
        queue.push(Publish("t", b"%d" % number, 1, expires_us=expires_us), number, 1, False)
    outbound, link = outbound_of(queue, clock=clock), ScriptedLink()
    outbound.pump(link, True)
    assert numbers_of(link) == [1, 2, 3, 4, 5, 7]
    assert (outbound.dropped, link.sent_in_runs) == (1, 5)


def test_an_identifier_in_flight_is_not_used_again() -> None:
    """The oldest message is never acknowledged: 65,535 places behind it the sending stops, in runs as without."""
    count = PACKET_IDS + 2 * READ_AHEAD
    newest = []
    for in_runs in (True, False):
        outbound = Outbound(queue_of(count), WINDOW_START, count, Counters())
        link = ScriptedLink()
        while True:
            outbound.pump(link, in_runs)
            got = link.take_messages()
            if not got:
                break
            for message in got:
                assert message.packet_id == 1 or outbound.puback(message.packet_id)
        assert (link.sent_in_runs > 0) == in_runs
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
    bench.send(reader, Acknowledgements(PUBACK, [shared.packet_id, *(message.packet_id for message in own)]))
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
    bench.send(reader, *(Pubrec(message.packet_id) for message in messages))
    assert reader.take() == [Pubrel(message.packet_id) for message in messages]


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
            bench.send(reader, Acknowledgements(PUBACK, [message.packet_id for message in messages]))
        first = PACKET_IDS - before_end + 1
        assert packet_ids == [*range(first, PACKET_IDS + 1), *range(1, 301 - before_end)]
        # A piece of fewer than RUN_MIN messages is sent one by one only while no run is in flight.
        assert reader.sent_in_runs == (298 if before_end == 2 else 300)
        bench.lose(reader)
