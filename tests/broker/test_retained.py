"""Retained messages for a new subscription: complete, in pieces, fair, and linear with what is published meanwhile."""

import pytest

from embermq.broker.limits import Limits
from embermq.broker.retained_delivery import PIECE_MESSAGES as PIECE
from embermq.protocol.packets import Puback, Publish, Suback, Subscribe, SubscriptionRequest, Unsubscribe
from embermq.store.memory import MemoryStore
from support.clauses import v311
from support.core import Bench, SlowStore

MANY = 3 * PIECE + 7


def filled(count: int = MANY, qos: int = 0, **limits: int) -> Bench:
    bench = Bench(limits=Limits(**limits))
    for n in range(count):
        bench.publish(f"t/{n:05}", b"%d" % n, qos=qos, retain=True)
    return bench


def test_a_wildcard_brings_every_retained_message_once_with_the_flag() -> None:
    bench = filled()
    client = bench.join()
    bench.subscribed(client, "t/#", 1)
    got = client.take_messages()
    assert len(got) == MANY
    assert {m.topic_name for m in got} == {f"t/{n:05}" for n in range(MANY)}
    assert all(m.retain and not m.dup for m in got)


@v311("MQTT-3.8.4-6")
@pytest.mark.parametrize(("stored", "granted"), [(s, g) for s in (0, 1, 2) for g in (0, 1, 2)])
def test_a_retained_message_comes_at_the_lower_of_stored_and_granted_qos(stored: int, granted: int) -> None:
    bench = Bench()
    bench.publish("t", b"x", qos=stored, retain=True)
    client = bench.join()
    bench.subscribed(client, "t", granted)
    [message] = client.take_messages()
    assert message.qos == min(stored, granted)


def test_a_window_paces_them_and_none_is_left_out() -> None:
    bench = filled(qos=1, inflight_max=10)
    client = bench.join()
    bench.subscribed(client, "#", 1)
    seen: list[str] = []
    while messages := client.take_messages():
        assert len(messages) <= 10
        seen += [m.topic_name for m in messages]
        bench.send(client, *[Puback(m.packet_id) for m in messages])
    assert seen == [f"t/{n:05}" for n in range(MANY)]


def test_a_reader_that_stops_gets_the_rest_when_it_reads_again() -> None:
    bench = filled()
    client = bench.join()
    client.room = 50
    bench.subscribed(client, "#")
    assert len(client.take_messages()) == 50
    client.room = 1_000
    bench.core.writable(client)
    bench.turn()
    assert len(client.take_messages()) == MANY - 50
    assert bench.core.counters.dropped_output_full == 0


def test_pieces_alternate_between_clients() -> None:
    bench = filled(PIECE * 8)
    clients = [bench.join(f"c{n}") for n in range(4)]
    for client in clients:
        bench.send(client, Subscribe(1, [SubscriptionRequest("#")]), turn=False)
    bench.core.end_turn()
    counts = [len(client.take_messages()) for client in clients]
    assert max(counts) - min(counts) <= PIECE
    assert min(counts) > 0
    bench.turn()
    assert [count + len(client.take_messages()) for count, client in zip(counts, clients, strict=True)] == [
        PIECE * 8
    ] * 4


def test_live_messages_flow_while_retained_ones_stream() -> None:
    bench = filled(qos=1, inflight_max=10)
    client = bench.join()
    bench.subscribed(client, "#", 1)
    client.take()
    bench.publish("live", b"now")
    assert client.payloads() == [b"now"]


def test_a_message_replaced_before_its_turn_comes_live_and_not_as_retained() -> None:
    bench = filled(qos=1, inflight_max=10)
    client = bench.join()
    bench.subscribed(client, "#", 1)
    client.take()
    last = f"t/{MANY - 1:05}"
    bench.publish(last, b"newer", qos=0, retain=True)
    assert [(m.topic_name, m.retain) for m in client.take_messages()] == [(last, False)]
    seen: list[Publish] = []
    bench.send(client, *[Puback(n) for n in range(1, 11)])
    while messages := client.take_messages():
        seen += messages
        bench.send(client, *[Puback(m.packet_id) for m in messages])
    assert last not in {m.topic_name for m in seen}


def test_a_message_cleared_before_its_turn_does_not_come_back() -> None:
    bench = filled(PIECE * 2)
    client = bench.join()
    client.room = PIECE
    bench.subscribed(client, "#")
    gone = f"t/{PIECE * 2 - 1:05}"
    client.room = 1
    bench.publish(gone, b"", retain=True)
    client.take()
    client.room = 1_000
    bench.core.writable(client)
    bench.turn()
    assert gone not in {m.topic_name for m in client.take_messages()}


def test_what_is_not_durable_yet_is_not_preceded_by_what_it_replaces() -> None:
    store = SlowStore()
    bench = Bench(store)
    bench.publish("t", b"old", retain=True)
    store.finish()
    client = bench.join("c")
    bench.send(client, Publish("t", b"new", retain=True), Subscribe(1, [SubscriptionRequest("t")]))
    store.finish()
    assert [(m.payload, m.retain) for m in client.take_messages()] == [(b"new", True)]


@v311("MQTT-3.3.1-6")
def test_the_last_one_before_the_subscribe_comes_even_if_replaced_in_the_same_breath() -> None:
    store = SlowStore()
    bench = Bench(store)
    client = bench.join("c")
    bench.send(
        client,
        Publish("t", b"one", retain=True),
        Publish("t", b"two", retain=True),
        Subscribe(1, [SubscriptionRequest("#")]),
        Publish("t", b"three", retain=True),
    )
    store.finish()
    assert [(m.payload, m.retain) for m in client.take_messages()] == [(b"two", True), (b"three", False)]


@pytest.mark.parametrize("lasting", [False, True])
def test_retained_messages_at_qos_1_survive_a_lost_connection_of_a_persistent_session(lasting: bool) -> None:
    bench = Bench(MemoryStore(queues=lasting), Limits(inflight_max=10))
    for n in range(25):
        bench.publish(f"t/{n:02}", b"x", qos=1, retain=True)
    client = bench.join("c", clean=False)
    bench.subscribed(client, "#", 1)
    first = [m.topic_name for m in client.take_messages()]
    assert len(first) == 10
    bench.lose(client)
    again = bench.join("c", clean=False)
    seen: list[str] = []
    while messages := again.take_messages():
        seen += [m.topic_name for m in messages]
        bench.send(again, *[Puback(m.packet_id) for m in messages])
    assert seen == [f"t/{n:02}" for n in range(25)]


def test_unsubscribing_ends_the_stream() -> None:
    bench = filled(qos=1, inflight_max=10)
    client = bench.join()
    bench.subscribed(client, "#", 1)
    first = client.take_messages()
    bench.send(client, Unsubscribe(2, ["#"]), *[Puback(m.packet_id) for m in first])
    assert client.take_messages() == []


def test_a_client_that_asks_faster_than_it_reads_is_bounded() -> None:
    bench = filled(10, subscriptions_max=4)
    client = bench.join("c")
    client.room = 0
    for _ in range(50):
        bench.subscribe(client, "#")
    [session] = bench.core.sessions()
    assert len(session.streams) <= 4


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling_says_when_retained_messages_are_wanted(handling: int, first: int, second: int) -> None:
    bench = Bench()
    bench.publish("t", b"x", retain=True)
    client = bench.join()
    bench.subscribe(client, "t", retain_handling=handling)
    assert len(client.take_messages()) == first
    bench.subscribe(client, "t", retain_handling=handling)
    assert len(client.take_messages()) == second


@pytest.mark.parametrize("keep", [False, True])
def test_retain_as_published_keeps_the_flag_of_a_live_message(keep: bool) -> None:
    bench = Bench()
    client = bench.join()
    bench.subscribe(client, "t", retain_as_published=keep)
    client.take()
    bench.publish("t", b"x", retain=True)
    bench.publish("t", b"y", retain=False)
    assert [m.retain for m in client.take_messages()] == [keep, False]


def test_the_servers_own_topics_are_there_for_a_new_subscriber_and_for_nobody_elses_wildcard() -> None:
    bench = Bench()
    bench.core.report()
    client = bench.join()
    bench.subscribed(client, "#")
    assert client.take_messages() == []
    bench.subscribed(client, "$SYS/broker/version")
    [message] = client.take_messages()
    assert (message.payload, message.retain) == (b"EmberMQ test", True)


@pytest.mark.parametrize("retain", [False, True])
def test_nobody_else_speaks_for_the_server(retain: bool) -> None:
    bench = Bench()
    client = bench.join()
    bench.subscribed(client, "$SYS/#")
    bench.core.report()
    client.take()
    for packet_id, topic_name in enumerate(("$SYS/broker/version", "$SYS/broker/mine"), 1):
        bench.send(client, Publish(topic_name, b"mine", 1, retain, packet_id=packet_id))
        assert client.take() == [Puback(packet_id, 0x90)]
    assert bench.core.counters.dropped_topic_refused == 2


def test_suback_comes_before_the_retained_messages() -> None:
    bench = filled(3)
    client = bench.join()
    bench.subscribe(client, "#")
    assert client.take()[0] == Suback(1, [0])
