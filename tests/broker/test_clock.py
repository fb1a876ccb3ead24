"""Messages expire while they wait, and not once they were sent."""

from pathlib import Path

import pytest

from embermq.broker.core import DROPS_A_TURN
from embermq.broker.outbound import DROPS_AT_ONCE
from embermq.protocol.packets import Publish, Will
from support.acknowledgements import puback
from support.clauses import v5
from support.core import Bench, DiskBench
from support.stores import ScriptedStore


def bench_of(persistent: bool) -> Bench:
    return Bench(ScriptedStore(late=False, queues=persistent))


@v5("MQTT-3.3.2-5")
@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_has_expired_before_its_client_came_is_not_sent(persistent: bool, qos: int, topic_filter: str) -> None:
    bench = bench_of(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, topic_filter, 2)
    bench.lose(client)
    bench.publish("t", b"short", qos, expiry_s=10)
    bench.publish("t", b"long", qos, expiry_s=1_000)
    bench.publish("t", b"for ever", qos)
    bench.pass_s(10)
    again = bench.join("c", clean=False)
    bench.commit()
    assert again.payloads() == [b"long", b"for ever"]
    assert bench.core.counters.dropped_expired == 1
    session = bench.core.sessions()[0]
    assert session.owed() == 2


def test_what_waits_for_the_window_expires_too() -> None:
    bench = bench_of(True)
    client = bench.join("c", clean=False, receive_maximum=1)
    bench.subscribed(client, "t", 1)
    for payload in (b"sent", b"waits", b"waits too"):
        bench.publish("t", payload, 1, expiry_s=5)
    bench.publish("t", b"last", 1)
    (message,) = client.take_messages()
    bench.pass_s(6)
    bench.send(client, puback(message.packet_id))
    assert client.payloads() == [b"last"]
    assert bench.core.counters.dropped_expired == 2


@v5("MQTT-4.3.3-7")
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_once_is_sent_again_although_it_has_expired(persistent: bool, qos: int) -> None:
    bench = bench_of(persistent)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "t", 2)
    bench.publish("t", b"x", qos, expiry_s=5)
    client.take()
    bench.lose(client)
    bench.pass_s(60)
    again = bench.join("c", clean=False)
    assert [(message.payload, message.dup) for message in again.take_messages()] == [(b"x", True)]


def test_what_was_sent_before_a_restart_is_sent_again_and_what_was_not_expires(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data")
    client = bench.join("c", clean=False, receive_maximum=1)
    bench.subscribed(client, "t", 1)
    bench.publish("t", b"sent", 1, expiry_s=5)
    bench.publish("t", b"not sent", 1, expiry_s=5)
    bench.publish("t", b"later", 1, expiry_s=500)
    bench.commit()
    bench = bench.restarted(after_s=60)
    again = bench.join("c", clean=False)
    assert [(message.payload, message.dup) for message in again.take_messages()] == [(b"sent", True), (b"later", False)]
    bench.journal.close()


@pytest.mark.parametrize("qos", [0, 1])
def test_an_interval_of_0_is_for_clients_that_can_take_the_message_at_once(qos: int) -> None:
    bench = Bench(ScriptedStore())
    here, away = bench.join("here", clean=False), bench.join("away", clean=False)
    for link in (here, away):
        bench.subscribed(link, "t", 1)
    bench.lose(away)
    bench.publish("t", b"now", qos, expiry_s=0)
    bench.commit()
    bench.pass_s(1)
    bench.commit()
    assert here.payloads() == [b"now"]
    assert bench.join("away", clean=False).payloads() == []


@pytest.mark.parametrize("qos", [0, 1])
def test_what_expires_while_it_waits_for_its_commit_is_not_sent(qos: int) -> None:
    store = ScriptedStore()
    bench = Bench(store)
    stored, clean = bench.join("stored", clean=False), bench.join("clean")
    for link in (stored, clean):
        bench.subscribed(link, "t", qos)
    bench.publish("t", b"x", 1, expiry_s=5)
    bench.pass_s(60)
    bench.commit()
    bench.publish("t", b"y", 1)
    bench.commit()
    assert stored.payloads() == [b"y"]
    assert clean.payloads() == [b"y"]
    assert bench.core.counters.dropped_expired == 2


def test_a_retained_message_expires() -> None:
    bench = Bench()
    bench.publish("t", b"retained", retain=True, expiry_s=10)
    first, second = bench.join("a"), bench.join("b")
    bench.pass_s(9)
    bench.subscribed(first, "t")
    assert first.payloads() == [b"retained"]
    bench.pass_s(1)
    bench.subscribed(second, "#")
    assert second.payloads() == []


def test_the_interval_of_a_will_begins_when_it_is_published() -> None:
    bench = bench_of(True)
    reader = bench.join("reader", clean=False)
    bench.subscribed(reader, "will", 1)
    client = bench.join("c", will=Will("will", b"gone", 1, properties=b"\x02\x00\x00\x00\x0a"))
    bench.pass_s(100)
    bench.lose(reader)
    bench.lose(client)
    bench.pass_s(9)
    again = bench.join("reader", clean=False)
    assert again.payloads() == [b"gone"]
    bench.send(bench.join("w"), Publish("will", b"", 1, packet_id=1))


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t"])
def test_a_turn_drops_a_bounded_number_and_the_next_ones_the_rest(persistent: bool, topic_filter: str) -> None:
    bench = Bench(ScriptedStore(late=False, queues=persistent))
    receiver = bench.join("receiver", clean=False, receive_maximum=1)
    bench.subscribed(receiver, topic_filter, 1)
    bench.publish("t", b"first", 1)
    for _ in range(DROPS_A_TURN + 10):
        bench.publish("t", b"old", 1, expiry_s=1)
    bench.publish("t", b"last", 1)
    bench.pass_s(2)
    (first,) = receiver.take_messages()
    assert first.payload == b"first"
    turns = 0
    bench.send(receiver, puback(first.packet_id), turn=False)
    before = bench.core.counters.dropped_expired
    while bench.core.end_turn():
        turns += 1
        dropped = bench.core.counters.dropped_expired
        assert dropped - before <= DROPS_A_TURN
        before = dropped
    assert turns >= 1
    assert receiver.payloads() == [b"last"]
    assert bench.core.counters.dropped_expired == DROPS_A_TURN + 10


def test_clients_whose_messages_have_expired_share_what_a_turn_drops() -> None:
    bench = Bench(ScriptedStore(late=False, queues=False))
    receivers = [bench.join(f"receiver-{number}", receive_maximum=1) for number in range(6)]
    for receiver in receivers:
        bench.subscribed(receiver, "t", 1)
    bench.publish("t", b"first", 1)
    for _ in range(1_500):
        bench.publish("t", b"old", 1, expiry_s=1)
    bench.publish("t", b"last", 1)
    bench.pass_s(2)
    for receiver in receivers:
        (first,) = receiver.take_messages()
        bench.send(receiver, puback(first.packet_id), turn=False)
    before = turns = 0
    while bench.core.end_turn():
        turns += 1
        dropped = bench.core.counters.dropped_expired
        assert dropped - before <= DROPS_A_TURN + DROPS_AT_ONCE
        before = dropped
    assert turns > 1
    assert [receiver.payloads() for receiver in receivers] == [[b"last"]] * 6
