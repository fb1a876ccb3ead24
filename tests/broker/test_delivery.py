"""QoS 1 and 2 towards a client: windows, packet ids, redelivery; with a session's own memory and a lasting queue."""

import pytest

from clauses import v311
from embermq.broker.counters import Counters
from embermq.broker.delivery import PACKET_IDS, Outbound, packet_id_of
from embermq.broker.limits import Limits
from embermq.protocol.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Queue, Queued, StoreError
from embermq.store.memory import MemoryQueue, MemoryStore
from scripted import Bench, ScriptedLink


@pytest.fixture(params=[False, True], ids=["memory", "lasting"])
def lasting(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def bench_with(lasting: bool, **limits: int) -> Bench:
    return Bench(MemoryStore(queues=lasting), Limits(**limits))


class DamagedQueue(Queue):
    """A queue whose messages are not there any more."""

    def push(self, message: Publish, offset: int, qos: int, retain: bool) -> int:
        raise NotImplementedError

    def read(self, after_sequence: int, limit: int) -> list[Queued]:
        raise StoreError("the log is damaged")

    def release(self, sequence: int) -> None: ...
    def acknowledge(self, sequence: int) -> None: ...

    def acknowledged(self) -> int:
        return 0

    def last(self) -> int:
        return 2


def test_packet_ids_count_up_and_come_round_without_zero() -> None:
    assert [packet_id_of(n) for n in (1, 2, PACKET_IDS, PACKET_IDS + 1)] == [1, 2, PACKET_IDS, 1]


def test_no_more_than_the_window_is_in_flight_and_an_ack_makes_room(lasting: bool) -> None:
    bench = bench_with(lasting, inflight_max=3)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    for n in range(5):
        bench.publish("t", b"%d" % n, qos=1)
    first = client.take_messages()
    assert [m.payload for m in first] == [b"0", b"1", b"2"]
    bench.send(client, Puback(first[1].packet_id))
    assert client.payloads() == [b"3"]
    bench.send(client, Puback(first[0].packet_id), Puback(first[2].packet_id))
    assert client.payloads() == [b"4"]


def test_a_client_may_ask_for_a_smaller_window(lasting: bool) -> None:
    bench = bench_with(lasting)
    client = bench.join("c", clean=False, receive_maximum=1)
    bench.subscribed(client, "t", 1)
    for n in range(3):
        bench.publish("t", b"%d" % n, qos=1)
    assert client.payloads() == [b"0"]


@v311("MQTT-4.4.0-1", "MQTT-3.3.1-1")
def test_what_was_not_acknowledged_comes_again_in_order_with_dup_and_the_same_id(lasting: bool) -> None:
    bench = bench_with(lasting)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    for n in range(4):
        bench.publish("t", b"%d" % n, qos=1 + n % 2)
    sent = client.take_messages()
    bench.send(client, Puback(sent[0].packet_id), Pubrec(sent[1].packet_id))
    assert client.take() == [Pubrel(sent[1].packet_id)]
    bench.lose(client)
    again = bench.join("c", clean=False)
    assert again.take() == [
        Pubrel(sent[1].packet_id),
        Publish("t", b"2", 1, False, True, sent[2].packet_id),
        Publish("t", b"3", 2, False, True, sent[3].packet_id),
    ]


def test_what_came_while_the_client_was_away_follows_without_dup(lasting: bool) -> None:
    bench = bench_with(lasting)
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


def test_a_full_queue_drops_the_newest_and_counts_it(lasting: bool) -> None:
    bench = bench_with(lasting, queue_messages_max=3)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    bench.lose(client)
    for n in range(5):
        bench.publish("t", b"%d" % n, qos=1)
    again = bench.join("c", clean=False)
    assert again.payloads() == [b"0", b"1", b"2"]
    assert bench.core.counters.dropped_queue_full == 2


def test_when_packet_ids_run_out_the_next_message_waits(lasting: bool) -> None:
    bench = bench_with(lasting, inflight_max=PACKET_IDS, queue_messages_max=PACKET_IDS + 100)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    for n in range(PACKET_IDS + 2):
        bench.publish("t", b"%d" % n, qos=1)
    sent = client.take_messages()
    assert len(sent) == PACKET_IDS
    # The second id is free, but the next in the sequence is the first, which is not: order is kept, nothing breaks.
    bench.send(client, Puback(2))
    assert client.take_messages() == []
    bench.send(client, Puback(1))
    assert [(m.payload, m.packet_id) for m in client.take_messages()] == [(b"65535", 1), (b"65536", 2)]


def test_a_reader_that_is_full_gets_qos_1_later_and_qos_0_never(lasting: bool) -> None:
    bench = bench_with(lasting)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 1)
    client.room = 1
    bench.publish("t", b"0", qos=1)
    bench.publish("t", b"1", qos=1)
    bench.publish("t", b"lost", qos=0)
    assert client.payloads() == [b"0"]
    assert bench.core.counters.dropped_output_full == 1
    client.room = 100
    bench.core.writable(client)
    bench.turn()
    assert client.payloads() == [b"1"]


def test_acks_for_nothing_are_counted_and_change_nothing(lasting: bool) -> None:
    bench = bench_with(lasting)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    bench.publish("t", b"x", qos=2)
    [message] = client.take_messages()
    # PUBACK and PUBCOMP are the wrong answers to QoS 2 at this point.
    bench.send(client, Puback(message.packet_id), Pubcomp(message.packet_id), Pubrec(999), Puback(7))
    assert client.take() == []
    assert bench.core.counters.acks_unknown == 4
    bench.send(client, Pubrec(message.packet_id))
    assert client.take() == [Pubrel(message.packet_id)]
    bench.send(client, Pubcomp(message.packet_id))
    assert client.take() == []
    assert client.closed is None


@v311("MQTT-4.3.3-1")
def test_pubrel_comes_again_for_a_repeated_pubrec(lasting: bool) -> None:
    bench = bench_with(lasting)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    bench.publish("t", b"x", qos=2)
    [message] = client.take_messages()
    bench.send(client, Pubrec(message.packet_id), Pubrec(message.packet_id))
    assert client.take() == [Pubrel(message.packet_id)] * 2


@v311("MQTT-3.3.1-1")
def test_after_a_crash_all_that_may_have_left_has_dup_however_small_the_window() -> None:
    queue = MemoryQueue()
    for n in range(1, 7):
        queue.push(Publish("t", b"%d" % n, 1), n, 1, False)
    outbound = Outbound(queue, 2, 100, Counters())
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
            assert outbound.puback(message.packet_id)
        outbound.settle()
        outbound.pump(link)
    assert got == [(b"1", True), (b"2", True), (b"3", True), (b"4", True), (b"5", True), (b"6", False)]
    assert outbound.newest_sent_ever() == 6


def test_what_the_store_cannot_give_costs_one_client_its_connection_and_nobody_else() -> None:
    bench = bench_with(True, inflight_max=1)
    unlucky, lucky = (bench.join(name, clean=False) for name in ("u", "l"))
    for client in (unlucky, lucky):
        bench.subscribed(client, "t", 1)
    for payload in (b"1", b"2"):
        bench.publish("t", payload, qos=1)
    firsts = [client.take_messages()[0] for client in (unlucky, lucky)]
    [damaged] = [session.outbound for session in bench.core.sessions() if session.client_id == "u"]
    damaged.queue = DamagedQueue()  # type: ignore[misc]
    bench.send(unlucky, Puback(firsts[0].packet_id), turn=False)
    bench.send(lucky, Puback(firsts[1].packet_id), turn=False)
    bench.turn()
    assert unlucky.closed == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert lucky.payloads() == [b"2"]
    assert bench.core.counters.store_refusals == 1
