"""Retained messages for a new subscription: complete, in pieces, fair, and linear with what is published live."""

import pytest

from embermq.broker.effects import DELIVERIES_A_TURN
from embermq.broker.limits import Limits
from embermq.broker.retained_delivery import (
    BUSY_BYTES_A_TURN,
    BYTES_A_TURN,
    COLUMNS_BYTES_MAX,
    FIRST_PIECES_A_TURN,
    PIECES_A_TURN,
)
from embermq.broker.retained_streams import PIECE_BYTES, PIECE_MESSAGES, PIECE_SEEKS, SEEK_BYTES
from embermq.protocol.packets import (
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback, pubcomp, pubrec
from support.clauses import v311
from support.core import Bench, ScriptedLink
from support.stores import ScriptedStore

MANY = 3 * PIECE_MESSAGES + 7


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


@pytest.mark.parametrize("topic_filter", ["#", "t/#", "t/+"])
def test_small_messages_go_to_a_client_many_at_a_time(topic_filter: str) -> None:
    bench = filled()
    bench.publish("t/00100", bytes(COLUMNS_BYTES_MAX + 1), retain=True)
    client = bench.join("many")
    bench.subscribed(client, topic_filter)
    assert [message.topic_name for message in client.take_messages()] == [f"t/{n:05}" for n in range(MANY)]
    assert sum(count for count in client.runs if count > 1) == MANY - PIECE_MESSAGES  # the large one is in the other


def test_a_client_that_reads_a_part_of_a_piece_gets_the_rest_later() -> None:
    bench = filled()
    for qos in (0, 1):
        client = bench.join(f"slow {qos}", room=70)
        bench.subscribed(client, "#", qos)
        names: list[str] = []
        while messages := client.take_messages():
            names += [message.topic_name for message in messages]
            bench.send(client, *[puback(message.packet_id) for message in messages if message.qos])
            client.room = 70
            bench.core.writable(client)
            bench.turn()
        assert names == [f"t/{n:05}" for n in range(MANY)]


def test_messages_with_long_topic_names_do_not_go_many_at_a_time() -> None:
    bench = Bench()
    for n in range(8):
        bench.publish(f"{n}" + "n" * 40_000, b"x", retain=True)
    client = bench.join()
    bench.subscribed(client, "#")
    assert len(client.take_messages()) == 8
    assert set(client.runs) == {1}


@pytest.mark.parametrize("granted", [1, 2])
def test_messages_with_an_acknowledgement_go_many_at_a_time_and_are_the_same(granted: int) -> None:
    got = []
    for run_max in (512, 1):
        bench = Bench(limits=Limits(inflight_max=200), run_max=run_max)
        for n in range(MANY):
            bench.publish(f"t/{n:05}", b"%d" % n, qos=max(granted, 1 + n % 2), retain=True)
        client = bench.join()
        bench.subscribed(client, "#", granted)
        while messages := client.take_messages():
            got += messages
            assert len(messages) <= 200
            answers: list[Packet] = []
            for message in messages:
                answers += [puback(message.packet_id)] if message.qos == 1 else [pubrec(message.packet_id)]
            bench.send(client, *answers)
            bench.send(client, *[pubcomp(message.packet_id) for message in messages if message.qos == 2])
        assert (client.sent_in_runs > MANY - 10) is (run_max > 1)
    assert len(got) == 2 * MANY
    assert got[:MANY] == got[MANY:]


def test_a_piece_of_messages_with_and_without_an_acknowledgement_comes_in_order() -> None:
    bench = Bench()
    for n in range(20):
        bench.publish(f"t/{n:05}", b"x", qos=n % 2, retain=True)
    client = bench.join()
    bench.subscribed(client, "#", 1)
    got = client.take_messages()
    assert [message.topic_name for message in got] == [f"t/{n:05}" for n in range(20)]
    assert [message.qos for message in got] == [0, 1] * 10


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
        bench.send(client, *[puback(m.packet_id) for m in messages])
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
    bench = filled(PIECE_MESSAGES * 8)
    clients = [bench.join(f"c{n}") for n in range(4)]
    for client in clients:
        bench.send(client, Subscribe(1, [SubscriptionRequest("#")]), turn=False)
    bench.core.end_turn()
    counts = [len(client.take_messages()) for client in clients]
    assert max(counts) - min(counts) <= PIECE_MESSAGES
    assert min(counts) > 0
    bench.turn()
    assert [count + len(client.take_messages()) for count, client in zip(counts, clients, strict=True)] == [
        PIECE_MESSAGES * 8
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
    bench.send(client, *[puback(n) for n in range(1, 11)])
    while messages := client.take_messages():
        seen += messages
        bench.send(client, *[puback(m.packet_id) for m in messages])
    assert last not in {m.topic_name for m in seen}


def test_a_message_cleared_before_its_turn_does_not_come_back() -> None:
    bench = filled(PIECE_MESSAGES * 2)
    client = bench.join()
    client.room = PIECE_MESSAGES
    bench.subscribed(client, "#")
    gone = f"t/{PIECE_MESSAGES * 2 - 1:05}"
    client.room = 1
    bench.publish(gone, b"", retain=True)
    client.take()
    client.room = 1_000
    bench.core.writable(client)
    bench.turn()
    assert gone not in {m.topic_name for m in client.take_messages()}


def test_what_is_not_durable_yet_is_not_preceded_by_what_it_replaces() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    bench.publish("t", b"old", retain=True)
    store.finish()
    client = bench.join("c")
    bench.send(client, Publish("t", b"new", retain=True), Subscribe(1, [SubscriptionRequest("t")]))
    store.finish()
    assert [(m.payload, m.retain) for m in client.take_messages()] == [(b"new", True)]


@v311("MQTT-3.3.1-6")
def test_the_last_one_before_the_subscribe_comes_even_if_replaced_in_the_same_breath() -> None:
    store = ScriptedStore()
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


@v311("MQTT-3.3.1-6")
def test_the_last_one_before_the_subscribe_comes_before_the_one_that_replaces_it_to_a_stored_queue() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    client = bench.join("c", clean=False)
    bench.send(client, Publish("t", b"one", 1, retain=True, packet_id=1))
    bench.commit()
    client.take()
    bench.send(
        client,
        Subscribe(1, [SubscriptionRequest("#", 1)]),
        Publish("t", b"two", 1, retain=True, packet_id=2),
        Publish("t", b"three", 1, retain=True, packet_id=3),
    )
    bench.commit()
    messages = [(m.payload, m.retain) for m in client.take_messages()]
    assert messages == [(b"one", True), (b"two", False), (b"three", False)]


@pytest.mark.parametrize("persistent", [False, True])
def test_retained_messages_at_qos_1_survive_a_lost_connection_of_a_persistent_session(persistent: bool) -> None:
    bench = Bench(ScriptedStore(late=False, queues=persistent), Limits(inflight_max=10))
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
        bench.send(again, *[puback(m.packet_id) for m in messages])
    assert seen == [f"t/{n:02}" for n in range(25)]


def test_unsubscribing_ends_the_stream() -> None:
    bench = filled(qos=1, inflight_max=10)
    client = bench.join()
    bench.subscribed(client, "#", 1)
    first = client.take_messages()
    bench.send(client, Unsubscribe(2, ["#"]), *[puback(m.packet_id) for m in first])
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


def test_suback_comes_before_the_retained_messages() -> None:
    bench = filled(3)
    client = bench.join()
    bench.subscribe(client, "#")
    assert client.take()[0] == Suback(1, [0])


def requests(count: int, pattern: str = "f/{}/#", qos: int = 0) -> list[SubscriptionRequest]:
    return [SubscriptionRequest(pattern.format(n), qos) for n in range(count)]


def test_a_subscribe_sees_what_was_retained_before_it_although_an_earlier_suback_leaves_first() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    client, writer = bench.join("c"), bench.join("w")
    bench.send(client, Subscribe(1, [SubscriptionRequest("other", 0)]))
    bench.send(writer, Publish("t", b"retained", 0, True))
    bench.send(client, Subscribe(2, [SubscriptionRequest("t", 0)]))
    store.finish()
    bench.turn()
    assert client.take() == [Suback(1, [0])]
    store.finish()
    bench.turn()
    assert client.take() == [Suback(2, [0]), Publish("t", b"retained", 0, True)]


def test_a_client_that_leaves_before_its_suback_is_forgotten() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    for n in range(5):
        client = bench.join(f"c{n}")
        bench.send(client, Subscribe(1, requests(10)))
        bench.lose(client)
        store.finish()
        bench.turn()
    assert not bench.core.retained._pending_subacks


def test_thousands_of_filters_take_many_short_turns() -> None:
    store = ScriptedStore(late=False, queues=False)
    bench = Bench(store)
    for n in range(3_000):
        bench.publish(f"f/{n}/x", b"x", retain=True)
    client = bench.join("c", room=1_000_000)
    bench.send(client, Subscribe(1, requests(3_000)), turn=False)
    turns = [store.read.pieces]
    while bench.core.end_turn():
        turns.append(store.read.pieces)
    assert max(after - before for before, after in zip([0, *turns], turns, strict=False)) <= (
        FIRST_PIECES_A_TURN + PIECES_A_TURN
    )
    assert sorted(m.topic_name for m in client.take_messages()) == sorted(f"f/{n}/x" for n in range(3_000))


def blocked(count: int) -> tuple[Bench, ScriptedLink]:
    """A client that acknowledges nothing, with many streams behind the one that waits for that."""
    bench = Bench()
    for n in range(20):
        bench.publish(f"first/{n}", b"x", 1, True)
    client = bench.join("c", receive_maximum=5)
    bench.subscribed(client, "first/#", 1)
    assert len(client.take_messages()) == 5
    bench.send(client, Subscribe(1, requests(count, qos=1)))
    client.take()
    return bench, client


def test_streams_of_many_filters_are_dropped_one_by_one_and_all_at_once() -> None:
    bench, client = blocked(10_000)
    [session] = bench.core.sessions()
    assert len(session.streams) == 10_001
    bench.send(client, Unsubscribe(2, [request.topic_filter for request in requests(9_999)]))
    client.take()
    assert len(session.streams) == 2
    bench.send(client, Unsubscribe(3, ["first/#"]), *[puback(n) for n in range(1, 6)])
    assert client.take_messages() == []
    assert len(session.streams) == 0


def test_a_ping_does_not_start_anything_over() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    bench.core.report()
    client = bench.join("c")
    for n in range(20):
        bench.publish(f"first/{n}", b"x", retain=True)
        store.finish()
        bench.turn()
    bench.send(client, Subscribe(1, [SubscriptionRequest("first/#", 0), SubscriptionRequest("$SYS/#", 0)]))
    client.room = 10
    store.finish()
    bench.turn()
    client.take()
    client.room = 1_000_000
    bench.send(client, Publish("t", b"x", 1, packet_id=1), Pingreq(), Pingreq())
    store.finish()
    bench.turn()
    assert client.take() == [puback(1, ReasonCode.NO_MATCHING_SUBSCRIBERS), Pingresp(), Pingresp()]


@pytest.mark.parametrize(("comparisons_max", "kept"), [(1_000, 20), (55, 5)])
def test_beyond_a_number_of_comparisons_a_pending_subscription_gets_only_what_is_new(
    comparisons_max: int, kept: int
) -> None:
    store = ScriptedStore()
    bench = Bench(store, comparisons_max=comparisons_max)
    client, writer = bench.join("c"), bench.join("w")
    for n in range(20):
        bench.send(writer, Publish(f"t/{n}", b"old", 0, True))
        store.finish()
        bench.turn()
    # Each retained message is compared with 10 filters, of which the first matches.
    bench.send(client, Subscribe(1, [SubscriptionRequest("t/#"), *requests(9)]), turn=False)
    bench.send(client, *[Publish(f"t/{n}", b"new", 0, True) for n in range(20)])
    store.finish()
    bench.turn()
    assert isinstance(client.got[0], Suback)
    got = client.take_messages()
    assert [m.payload for m in got if m.retain] == [b"old"] * kept
    assert [m.payload for m in got if not m.retain] == [b"new"] * 20


def test_large_messages_are_read_from_the_store_a_few_at_a_time() -> None:
    store = ScriptedStore(late=False, queues=False)
    bench = Bench(store)
    for n in range(12):
        bench.publish(f"f/{n:02}", bytes(PIECE_BYTES // 2), retain=True)
    client = bench.join("c", room=3)
    bench.subscribed(client, "f/#")
    assert len(client.take_messages()) == 3
    assert store.read.piece_bytes <= 2 * 3 * PIECE_BYTES
    client.room = 100
    bench.core.writable(client)
    bench.turn()
    assert [message.topic_name for message in client.take_messages()] == [f"f/{n:02}" for n in range(3, 12)]
    assert store.read.piece_bytes <= 2 * 12 * PIECE_BYTES


def test_a_turn_reads_only_so_many_bytes_for_all_clients_together() -> None:
    store = ScriptedStore(late=False, queues=False)
    bench = Bench(store)
    for n in range(4):
        bench.publish(f"f/{n}", bytes(2 * PIECE_BYTES), retain=True)
    clients = [bench.join(f"c{n}") for n in range(10)]
    for client in clients:
        bench.send(client, Subscribe(1, [SubscriptionRequest("f/#", 0)]), turn=False)
    more, most, before = True, 0, 0
    while more:
        more = bench.core.end_turn()
        most, before = max(most, store.read.piece_bytes - before), store.read.piece_bytes
    # What is left of the budget may be used once with the SUBACKs and once at the end of the turn.
    assert most <= 2 * (BYTES_A_TURN + 2 * PIECE_BYTES)
    assert [len(client.take_messages()) for client in clients] == [4] * 10


def test_a_filter_that_matches_little_of_much_lets_others_have_their_turn() -> None:
    store = ScriptedStore(late=False, queues=False)
    bench = Bench(store)
    for n in range(20_000):
        bench.publish(f"{n:05}/miss", b"x", retain=True)
    bench.publish("99999/hit", b"found", retain=True)
    client = bench.join("c")
    bench.send(client, Subscribe(1, [SubscriptionRequest("+/hit", 0)]), turn=False)
    turns = 0
    while bench.core.end_turn():
        turns += 1
    assert turns >= 18
    assert client.take() == [Suback(1, [0]), Publish("99999/hit", b"found", 0, True)]


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_turn_searches_so_much_for_all_clients_and_less_while_messages_wait(is_busy: bool) -> None:
    store = ScriptedStore(late=False, queues=False)
    bench = Bench(store)
    for n in range(4_000):
        bench.publish(f"{n:05}/miss", b"x", retain=True)
    clients = [bench.join(f"c{n}") for n in range(8)]
    readers = [bench.join(f"r{n}") for n in range(DELIVERIES_A_TURN // 64)]
    if is_busy:
        for reader in readers:
            bench.subscribed(reader, "live")
    publisher = bench.join("p")
    for client in clients:
        requests = [SubscriptionRequest(f"+/none{n}", 0) for n in range(20)]
        bench.send(client, Subscribe(1, requests), turn=False)
    most, before = 0, store.read.piece_seeks
    for turn in range(20):
        # More deliveries than one turn begins, so that some always wait.
        bench.send(publisher, *[Publish("live", b"", 1, packet_id=n) for n in range(1, 400)], turn=False)
        bench.core.end_turn()
        for link in (publisher, *readers):
            link.take()
        if turn and bench.core.effects.must_release() is is_busy:
            most = max(most, store.read.piece_seeks - before)
        before = store.read.piece_seeks
    bytes_max = BUSY_BYTES_A_TURN if is_busy else BYTES_A_TURN
    assert 0 < most <= bytes_max // SEEK_BYTES + PIECE_SEEKS  # the last piece may go beyond it


@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_with_a_rate_gets_its_retained_messages_second_by_second(qos: int) -> None:
    bench = filled(MANY, qos)
    slow, other = bench.join("slow"), bench.join("other")
    slow.retained_rate = 100
    bench.subscribed(slow, "t/#", qos)
    bench.subscribed(other, "t/#", qos)
    assert len(other.take_messages()) == MANY
    bench.publish("t/live", b"live")  # is not slowed
    names: list[str] = []
    seconds = 0
    while len(names) < MANY + 1:
        bench.pass_s(0.01)  # within the second nothing more comes
        got = slow.take_messages()
        names += [message.topic_name for message in got]
        bench.send(slow, *[puback(message.packet_id) for message in got if message.qos])
        assert slow.take_messages() == []
        retained = [message for message in got if message.retain]
        assert len(retained) == min(100, MANY - 100 * seconds)
        seconds += 1
        bench.pass_s(1)
    assert sorted(names) == sorted([*(f"t/{n:05}" for n in range(MANY)), "t/live"])
    assert bench.core.counters.retained_slowed_by_rate == MANY // 100
    bench.subscribed(slow, "t/00001", qos)
    assert len(slow.take_messages()) == 1


def test_a_client_with_a_rate_that_leaves_is_forgotten() -> None:
    bench = filled()
    slow = bench.join("slow")
    slow.retained_rate = 10
    bench.subscribed(slow, "t/#")
    assert len(slow.take_messages()) == 10
    bench.lose(slow)
    bench.pass_s(1)
    assert slow.take_messages() == []
