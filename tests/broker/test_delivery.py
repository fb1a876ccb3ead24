"""QoS 1 and 2 towards a client: windows, packet ids, redelivery; with a session's own memory and a persistent queue."""

import pytest

from embermq.broker.access import Identity
from embermq.broker.clock import Clock
from embermq.broker.counters import Counters
from embermq.broker.limits import Limits
from embermq.broker.outbound import Outbound
from embermq.protocol.packets import PACKET_IDS, Connect, Delivery, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Queue, StoreError
from support.acknowledgements import is_pubrel, puback, pubcomp, pubrec, pubrel
from support.clauses import v5, v311
from support.core import Bench, ScriptedLink
from support.stores import MemoryQueue, ScriptedSessions, ScriptedStore


@pytest.fixture(params=[False, True], ids=["memory", "persistent"])
def persistent(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def bench_with(persistent: bool, **limits: int) -> Bench:
    return Bench(ScriptedStore(late=False, queues=persistent), Limits(**limits))


class FragileQueue(Queue):
    """A queue whose messages are not there any more, once it is damaged."""

    def __init__(self, whole: Queue) -> None:
        self.whole = whole
        self.is_damaged = False

    def push(
        self, message: Publish, offset: int, qos: int, retain: bool, subscription_ids: tuple[int, ...] = ()
    ) -> int:
        return self.whole.push(message, offset, qos, retain, subscription_ids)

    def read(self, after_sequence: int, limit: int) -> list[Delivery]:
        if self.is_damaged:
            raise StoreError("the log is damaged")
        return self.whole.read(after_sequence, limit)

    def release(self, sequence: int) -> None:
        self.whole.release(sequence)

    def acknowledge(self, sequence: int) -> None:
        self.whole.acknowledge(sequence)

    def acknowledged(self) -> int:
        return self.whole.acknowledged()

    def last(self) -> int:
        return self.whole.last()

    def log_bytes(self) -> int:
        return self.whole.log_bytes()


class FragileSessions(ScriptedSessions):
    """Gives sessions fragile queues."""

    def __init__(self) -> None:
        super().__init__(True, (), (), ())
        self.queues: list[FragileQueue] = []  # in the order of the sessions

    def queue(self, session_id: int) -> Queue:
        whole = super().queue(session_id)
        assert whole is not None
        self.queues.append(FragileQueue(whole))
        return self.queues[-1]


def test_no_more_than_the_window_is_in_flight_and_an_ack_makes_room(persistent: bool) -> None:
    bench = bench_with(persistent, inflight_max=3)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    for n in range(5):
        bench.publish("t", b"%d" % n, qos=1)
    first = client.take_messages()
    assert [m.payload for m in first] == [b"0", b"1", b"2"]
    bench.send(client, puback(first[1].packet_id))
    assert client.payloads() == [b"3"]
    bench.send(client, puback(first[0].packet_id), puback(first[2].packet_id))
    assert client.payloads() == [b"4"]


def test_a_client_may_ask_for_a_smaller_window(persistent: bool) -> None:
    bench = bench_with(persistent)
    client = bench.join("c", clean=False, receive_maximum=1)
    bench.subscribed(client, "t", 1)
    for n in range(3):
        bench.publish("t", b"%d" % n, qos=1)
    assert client.payloads() == [b"0"]


@v311("MQTT-4.4.0-1", "MQTT-3.3.1-1")
def test_what_was_not_acknowledged_comes_again_in_order_with_dup_and_the_same_id(persistent: bool) -> None:
    bench = bench_with(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    for n in range(4):
        bench.publish("t", b"%d" % n, qos=1 + n % 2)
    sent = client.take_messages()
    bench.send(client, puback(sent[0].packet_id), pubrec(sent[1].packet_id))
    assert client.take() == [pubrel(sent[1].packet_id)]
    bench.lose(client)
    again = bench.join("c", clean=False)
    assert again.take() == [
        pubrel(sent[1].packet_id),
        Publish("t", b"2", 1, False, True, sent[2].packet_id),
        Publish("t", b"3", 2, False, True, sent[3].packet_id),
    ]


def test_what_came_while_the_client_was_away_follows_without_dup(persistent: bool) -> None:
    bench = bench_with(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    bench.publish("t", b"before", qos=1)
    sent = client.take_messages()
    bench.lose(client)
    bench.publish("t", b"away", qos=1)
    bench.publish("t", b"at most once", qos=0)
    again = bench.join("c", clean=False)
    got = again.take_messages()
    assert [(m.payload, m.dup) for m in got] == [(b"before", True), (b"away", False)]
    assert got[0].packet_id == sent[0].packet_id


def test_a_full_queue_drops_the_newest_and_counts_it(persistent: bool) -> None:
    bench = bench_with(persistent, queue_messages_max=3)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    bench.lose(client)
    for n in range(5):
        bench.publish("t", b"%d" % n, qos=1)
    again = bench.join("c", clean=False)
    assert again.payloads() == [b"0", b"1", b"2"]
    assert bench.core.counters.dropped_queue_full == 2


def test_when_packet_ids_run_out_the_next_message_waits(persistent: bool) -> None:
    bench = bench_with(persistent, inflight_max=PACKET_IDS, queue_messages_max=PACKET_IDS + 100)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    assert client.session is not None
    client.session.outbound.window = PACKET_IDS  # as after many quick acknowledgements
    for n in range(PACKET_IDS + 2):
        bench.publish("t", b"%d" % n, qos=1)
    sent = client.take_messages()
    assert len(sent) == PACKET_IDS
    # The second id is free, but the next in the sequence is the first, which is not: order is kept, nothing breaks.
    bench.send(client, puback(2))
    assert client.take_messages() == []
    bench.send(client, puback(1))
    assert [(m.payload, m.packet_id) for m in client.take_messages()] == [(b"65535", 1), (b"65536", 2)]


def test_a_reader_that_is_full_gets_qos_1_later_and_qos_0_never(persistent: bool) -> None:
    bench = bench_with(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    client.room = 1
    bench.publish("t", b"0", qos=1)
    bench.publish("t", b"1", qos=1)
    bench.publish("t", b"lost", qos=0)
    assert client.payloads() == [b"0"]
    assert bench.core.counters.dropped_output_full == 1
    assert bench.core.connections.sessions["c"].outbound.dropped == 1
    client.room = 100
    bench.core.writable(client)
    bench.turn()
    assert client.payloads() == [b"1"]


def test_acks_for_nothing_are_counted_and_change_nothing(persistent: bool) -> None:
    bench = bench_with(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    bench.publish("t", b"x", qos=2)
    [message] = client.take_messages()
    # PUBACK and PUBCOMP are the wrong answers to QoS 2 at this point.
    bench.send(client, puback(message.packet_id), pubcomp(message.packet_id), pubrec(999), puback(7))
    assert client.take() == [pubrel(999, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    assert bench.core.counters.acks_unknown == 4
    bench.send(client, pubrec(message.packet_id))
    assert client.take() == [pubrel(message.packet_id)]
    bench.send(client, pubcomp(message.packet_id))
    assert client.take() == []
    assert client.closed is None


@v311("MQTT-4.3.3-1")
def test_pubrel_comes_again_for_a_repeated_pubrec(persistent: bool) -> None:
    bench = bench_with(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    bench.publish("t", b"x", qos=2)
    [message] = client.take_messages()
    bench.send(client, pubrec(message.packet_id), pubrec(message.packet_id))
    assert client.take() == [pubrel(message.packet_id)] * 2


@v311("MQTT-3.3.1-1")
def test_after_a_crash_all_that_may_have_left_has_dup_however_small_the_window() -> None:
    queue = MemoryQueue()
    for n in range(1, 7):
        queue.push(Publish("t", b"%d" % n, 1), n, 1, False)
    outbound = Outbound(queue, 2, Limits(queue_messages_max=100), Counters(), Clock())
    outbound.sent_before = 5
    link = ScriptedLink()
    outbound.resume(link)
    outbound.pump(link)
    # The connection ends before all of it has left again: the next restart must know of it all the same.
    assert outbound.newest_sent_ever() == 5
    got: list[tuple[bytes, bool]] = []
    while messages := link.take_messages():
        for message in messages:
            got.append((message.payload, message.dup))
            assert outbound.finish(message.packet_id, 1, 1) == 0
        outbound.record_acknowledged()
        outbound.pump(link)
    assert got == [(b"1", True), (b"2", True), (b"3", True), (b"4", True), (b"5", True), (b"6", False)]
    assert outbound.newest_sent_ever() == 6


def test_what_the_store_cannot_give_costs_one_client_its_connection_and_nobody_else() -> None:
    sessions = FragileSessions()
    store = ScriptedStore(late=False, sessions=sessions)
    bench = Bench(store, Limits(inflight_max=1))
    unlucky, lucky = (bench.join(name, clean=False) for name in ("u", "l"))
    for client in (unlucky, lucky):
        bench.subscribed(client, "t", 1)
    for payload in (b"1", b"2"):
        bench.publish("t", payload, qos=1)
    firsts = [client.take_messages()[0] for client in (unlucky, lucky)]
    sessions.queues[0].is_damaged = True
    bench.send(unlucky, puback(firsts[0].packet_id), turn=False)
    bench.send(lucky, puback(firsts[1].packet_id), turn=False)
    bench.turn()
    assert unlucky.closed == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert lucky.payloads() == [b"2"]
    assert bench.core.counters.store_refusals == 1


def test_a_puback_that_nothing_follows_from_is_done_without_a_turn_and_is_a_sign_of_life() -> None:
    bench = Bench()
    client = bench.join("c", keep_alive_s=10)
    bench.subscribed(client, "t", 1)
    bench.publish("t", b"x", qos=1)
    (message,) = client.take_messages()
    bench.pass_s(14)
    received = bench.core.counters.messages_received
    assert bench.core.acknowledged(client, message.packet_id, bench.now_ms)
    assert bench.core.counters.messages_received == received + 1
    bench.pass_s(14)
    assert client.closed is None
    assert not bench.core.acknowledged(client, message.packet_id, bench.now_ms), "it is not in flight any more"
    bench.pass_s(2)
    assert client.closed == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert not bench.core.acknowledged(client, message.packet_id, bench.now_ms), "it has no session any more"


def test_a_puback_that_makes_room_is_left_to_the_turn(persistent: bool) -> None:
    bench = bench_with(persistent, inflight_max=1)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    bench.publish("t", b"0", qos=1)
    bench.publish("t", b"1", qos=1)
    (message,) = client.take_messages()
    assert not bench.core.acknowledged(client, message.packet_id, bench.now_ms)
    bench.send(client, puback(message.packet_id))
    assert client.payloads() == [b"1"]


def test_a_puback_of_qos_2_is_left_to_the_turn_which_counts_it() -> None:
    bench = Bench()
    client = bench.join("c")
    bench.subscribed(client, "t", 2)
    bench.publish("t", b"x", qos=2)
    (message,) = client.take_messages()
    assert not bench.core.acknowledged(client, message.packet_id, bench.now_ms)
    bench.send(client, puback(message.packet_id), pubrec(message.packet_id))
    assert bench.core.counters.acks_unknown == 1
    assert client.take() == [pubrel(message.packet_id)]


def test_retained_messages_go_on_when_a_puback_makes_room() -> None:
    bench = Bench(limits=Limits(inflight_max=1))
    for n in range(3):
        bench.publish(f"t/{n}", b"%d" % n, qos=1, retain=True)
    client = bench.join("c")
    bench.subscribed(client, "t/+", 1)
    for n in range(3):
        (message,) = client.take_messages()
        assert message.payload == b"%d" % n
        if not bench.core.acknowledged(client, message.packet_id, bench.now_ms):
            bench.send(client, puback(message.packet_id))


@v311("MQTT-4.6.0-2", "MQTT-4.6.0-5")
def test_without_a_disk_to_wait_for_messages_keep_their_order_all_the_same() -> None:
    bench = Bench()
    reader, one, two, three = bench.join("r"), bench.join("1"), bench.join("2"), bench.join("3")
    bench.subscribed(reader, "t", 2)
    bench.send(one, Publish("t", b"a", 2, False, False, 1), Publish("t", b"b", 1, False, False, 2), turn=False)
    bench.send(two, Publish("t", b"c", 1, True, False, 1), turn=False)
    bench.send(three, Publish("t", b"d", 1, False, False, 1))
    assert reader.payloads() == [b"a", b"b", b"c", b"d"]
    assert one.take() == [pubrec(1), puback(2)]


def test_a_client_that_is_away_gets_what_another_one_published_meanwhile(persistent: bool) -> None:
    bench = bench_with(persistent)
    away, writer = bench.join("away", clean=False), bench.join("w")
    bench.subscribed(away, "t", 1)
    bench.lose(away)
    bench.send(writer, Publish("t", b"a", 1, False, False, 1))
    bench.send(writer, Publish("t", b"b", 1, False, False, 2))
    assert writer.take() == [puback(1), puback(2)]
    assert bench.join("away", clean=False).payloads() == [b"a", b"b"]


# What one session has in memory is bounded in bytes, whatever its client reads and acknowledges.

KIB = 1024


def limited_in_bytes(persistent: bool) -> tuple[Bench, ScriptedLink]:
    bench = Bench(ScriptedStore(late=False, queues=persistent), Limits(queue_bytes_max=100 * KIB))
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    return bench, client


def in_memory(bench: Bench) -> int:
    [session] = bench.core.sessions()
    outbound = session.outbound
    waiting = [] if outbound.queue is not None else list(outbound.backlog)
    return sum(len(queued.messages[0].payload) for queued in [*outbound.inflight.runs, *waiting])


def test_large_messages_that_are_not_acknowledged_close_the_window_early(persistent: bool) -> None:
    bench, client = limited_in_bytes(persistent)
    for n in range(50):
        bench.publish("t", b"%02d" % n + bytes(10 * KIB), 1)
    got = client.take_messages()
    assert len(got) == 10
    assert in_memory(bench) <= 111 * KIB
    dropped = bench.core.counters.dropped_queue_full
    assert dropped == (0 if persistent else 40)
    bench.send(client, *[puback(message.packet_id) for message in got])
    for n in range(50, 60):
        bench.publish("t", b"%02d" % n + bytes(10 * KIB), 1)
    while more := client.take_messages():
        got += more
        bench.send(client, *[puback(message.packet_id) for message in more])
    wanted = range(60) if persistent else [*range(10), *range(50, 60)]
    assert [int(message.payload[:2]) for message in got] == list(wanted)


def test_the_queue_of_a_client_that_is_away_is_bounded_in_bytes_where_it_is_in_memory(persistent: bool) -> None:
    bench, client = limited_in_bytes(persistent)
    bench.lose(client)
    for n in range(50):
        bench.publish("t", b"%02d" % n + bytes(10 * KIB), 1)
    assert in_memory(bench) <= 111 * KIB
    assert bench.core.counters.dropped_queue_full == (0 if persistent else 40)


def test_one_message_goes_however_large(persistent: bool) -> None:
    bench, client = limited_in_bytes(persistent)
    for n in range(3):
        bench.publish("t", b"%d" % n + bytes(200 * KIB), 1)
        [message] = client.take_messages()
        assert message.payload[:1] == b"%d" % n
        bench.send(client, puback(message.packet_id))
    assert bench.core.counters.dropped_queue_full == 0


def test_a_client_that_is_back_gets_its_window_again_as_fast_as_it_reads(persistent: bool) -> None:
    bench, client = limited_in_bytes(persistent)
    for n in range(8):
        bench.publish("t", b"%d" % n, 1)
    assert len(client.take_messages()) == 8
    bench.lose(client)
    bench.publish("t", b"8", 1)
    client = bench.join("c", clean=False, room=3)
    again = client.take_messages()
    assert [(message.payload, message.dup) for message in again] == [(b"0", True), (b"1", True), (b"2", True)]
    # A new message waits behind them, and one that is acknowledged in the meantime is not sent again.
    bench.publish("t", b"9", 1)
    bench.send(client, puback(5))
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


def test_acknowledged_messages_weigh_nothing(persistent: bool) -> None:
    bench, client = limited_in_bytes(persistent)
    for _ in range(500):
        bench.send(client, Publish("t", bytes(KIB), 1, packet_id=1))
        [message] = client.take_messages()
        bench.send(client, puback(message.packet_id))
    assert bench.core.counters.dropped_queue_full == 0


@v5("MQTT-3.3.4-9", "MQTT-3.3.4-10", "MQTT-4.4.0-1")
@pytest.mark.parametrize("persistent", [False, True])
def test_a_resumed_session_gets_publish_packets_within_its_new_window_and_every_pubrel(persistent: bool) -> None:
    bench = bench_with(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    for number in range(6):
        bench.publish("t", b"%d" % number, qos=2)
    ids = [message.packet_id for message in client.take_messages()]
    bench.send(client, pubrec(ids[1]), pubrec(ids[5]))
    client.take()
    bench.lose(client)
    again = bench.join("c", clean=False, receive_maximum=2)
    packets = again.take()
    assert [packet.packet_id for packet in packets if is_pubrel(packet)] == [ids[1], ids[5]]
    sent = [packet.packet_id for packet in packets if isinstance(packet, Publish)]
    assert sent == [ids[0]]
    while packets:
        for packet in packets:
            if is_pubrel(packet):
                bench.send(again, pubcomp(packet.packet_id))
            elif isinstance(packet, Publish):
                assert packet.dup
                bench.send(again, pubrec(packet.packet_id))
        packets = again.take()
        sent += [packet.packet_id for packet in packets if isinstance(packet, Publish)]
        outbound = bench.core.sessions()[0].outbound
        assert sum(len(run) for run in outbound.inflight.runs if run.is_sent) <= 2
    assert sent == [ids[0], ids[2], ids[3], ids[4]]
    assert bench.core.sessions()[0].outbound.memory_bytes == 0


class SmallLink(ScriptedLink):
    """A client with a Maximum Packet Size: what is larger is dropped."""

    def fits(self, delivery: Delivery) -> bool:
        [message] = delivery.messages
        return len(message.payload) < 10


@v5("MQTT-3.1.2-25")
@pytest.mark.parametrize("run_max", [1, 512])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
def test_a_message_that_is_too_large_for_its_client_counts_as_delivered(
    persistent: bool, run_max: int, topic_filter: str
) -> None:
    bench = Bench(ScriptedStore(late=False, queues=persistent), run_max=run_max)
    client = SmallLink()
    connect = Connect("c", False, session_expiry_s=60, receive_maximum=1, maximum_packet_size=10)
    bench.core.connect(client, connect, Identity("", "c"), "MQTT 5", "test")
    bench.turn()
    bench.subscribe(client, topic_filter, 1)
    client.take()
    for payload in (b"small", bytes(20), b"small too", bytes(30)):
        bench.publish("t", payload, qos=1)
    got = []
    while messages := client.take_messages():
        got += [message.payload for message in messages]
        bench.send(client, *(puback(message.packet_id) for message in messages))
    assert got == [b"small", b"small too"]
    outbound = bench.core.sessions()[0].outbound
    assert (len(outbound.inflight), len(outbound.shared), outbound.memory_bytes) == (0, 0, 0)


def test_a_pubrel_of_an_unknown_identifier_is_confirmed_with_a_reason() -> None:
    bench = Bench()
    client = bench.join("c")
    bench.send(client, pubrel(7))
    assert client.take() == [pubcomp(7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]
    bench.send(client, Publish("t", b"x", 2, packet_id=7), pubrel(7))
    assert client.take() == [pubrec(7, ReasonCode.NO_MATCHING_SUBSCRIBERS), pubcomp(7)]


@v5("MQTT-4.3.3-4", "MQTT-4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_the_client_refuses_is_not_sent_again(qos: int) -> None:
    bench = bench_with(True)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    bench.publish("t", b"x", qos=qos)
    (message,) = client.take_messages()
    refusal = puback(message.packet_id, 0x97) if qos == 1 else pubrec(message.packet_id, 0x97)
    bench.send(client, refusal)
    assert client.take() == []
    bench.lose(client)
    assert bench.join("c", clean=False).take() == []


@v5("MQTT-4.3.3-9")
def test_the_identifier_of_a_refused_qos_2_message_is_free() -> None:
    bench = Bench(limits=Limits(topic_levels_max=1))
    client = bench.join("c")
    bench.send(client, Publish("a/b", b"x", 2, packet_id=1), Publish("a", b"x", 2, packet_id=1))
    assert client.take() == [
        pubrec(1, ReasonCode.TOPIC_NAME_INVALID),
        pubrec(1, ReasonCode.NO_MATCHING_SUBSCRIBERS),
    ]
