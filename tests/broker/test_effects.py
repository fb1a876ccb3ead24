"""Effects: nothing that promises something is sent before the commit, and nothing overtakes."""

from embermq.broker.effects import DELIVERIES_A_TURN, WEIGHT_MAX
from embermq.broker.subscriptions import SUBACK_WEIGHT
from embermq.protocol.packets import (
    Connack,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
    Unsuback,
    Unsubscribe,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback, pubcomp, pubrec, pubrel
from support.clauses import v311
from support.core import Bench
from support.stores import ScriptedStore


def test_puback_and_delivery_wait_for_the_commit() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader, writer = bench.join("r"), bench.join("w")
    bench.send(reader, Subscribe(1, [SubscriptionRequest("t", 1)]))
    store.finish()
    assert reader.take() == [Suback(1, [1])]
    bench.send(writer, Publish("t", b"x", 1, packet_id=9))
    assert (writer.take(), reader.take()) == ([], [])
    store.finish()
    assert writer.take() == [puback(9)]
    assert reader.payloads() == [b"x"]


def test_qos_0_goes_at_once_but_not_before_an_earlier_message_of_its_publisher() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader, writer, other = (bench.join(name) for name in ("r", "w", "o"))
    bench.send(reader, Subscribe(1, [SubscriptionRequest("t", 1)]))
    store.finish()
    reader.take()
    bench.send(writer, Publish("t", b"1", 1, packet_id=1), Publish("t", b"2"))
    bench.send(other, Publish("t", b"other"))
    assert reader.payloads() == [b"other"]
    store.finish()
    assert reader.payloads() == [b"1", b"2"]
    bench.turn()
    bench.send(writer, Publish("t", b"3"))
    assert reader.payloads() == [b"3"]


def test_while_one_group_is_written_the_next_one_gathers() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w")
    bench.subscribed(bench.join("r"), "t", 0)
    bench.send(writer, Publish("t", b"x", 1, packet_id=1))
    bench.send(writer, Publish("t", b"x", 1, packet_id=2))
    bench.send(writer, Publish("t", b"x", 1, packet_id=3))
    store.finish()
    assert writer.take() == [puback(1)]
    bench.turn()
    store.finish()
    assert writer.take() == [puback(2), puback(3)]
    assert store.done is None


@v311("MQTT-3.2.0-1")
def test_nothing_comes_before_connack_and_what_was_sent_after_connect_waits() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    link = bench.connect("c", clean=False)
    link.on_open = lambda: bench.core.receive(link, [Pingreq()], bench.now_ms)
    bench.publish("$x", b"")
    assert link.take() == []
    assert not link.is_open
    store.finish()
    assert link.take() == [Connack(False), Pingresp()]


def test_a_ping_does_not_overtake_what_its_client_waits_for() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w")
    bench.send(writer, Unsubscribe(4, ["a"]), Pingreq())
    assert writer.take() == []
    store.finish()
    assert writer.take() == [Unsuback(4, [ReasonCode.NO_SUBSCRIPTION_EXISTED]), Pingresp()]


@v311("MQTT-4.3.3-2")
def test_qos_2_repeats_are_answered_and_delivered_once() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader, writer = bench.join("r"), bench.join("w")
    bench.send(reader, Subscribe(1, [SubscriptionRequest("t", 2)]))
    store.finish()
    reader.take()
    message = Publish("t", b"x", 2, packet_id=5)
    bench.send(writer, message)
    bench.send(writer, message)
    assert writer.take() == []
    store.finish()
    bench.turn()
    store.finish()
    assert writer.take() == [pubrec(5), pubrec(5)]
    assert reader.payloads() == [b"x"]
    bench.send(writer, pubrel(5))
    assert writer.take() == [pubcomp(5)]
    bench.send(writer, message)
    store.finish()
    assert reader.payloads() == [b"x"]


def test_a_persistent_session_is_sent_pubcomp_when_its_pubrel_is_recorded() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w", clean=False)
    bench.subscribed(bench.join("r"), "t", 0)
    bench.send(writer, Publish("t", b"x", 2, packet_id=5))
    store.finish()
    assert writer.take() == [pubrec(5)]
    bench.turn()
    bench.send(writer, pubrel(5))
    assert writer.take() == []
    store.finish()
    assert writer.take() == [pubcomp(5)]


def test_a_pubrel_that_comes_too_early_is_answered_after_its_pubrec() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w")
    bench.subscribed(bench.join("r"), "t", 0)
    message = Publish("t", b"x", 2, packet_id=5)
    bench.send(writer, message, pubrel(5))
    bench.send(writer, message, pubrel(5))
    assert writer.take() == []
    bench.commit()
    assert writer.take() == [pubrec(5), pubcomp(5), pubrec(5), pubcomp(5)]


def test_a_session_that_is_not_persistent_does_not_wait_for_records_of_others() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader, writer, other = (bench.join(name) for name in ("r", "w", "o"))
    bench.subscribed(reader, "t", 2)
    bench.send(writer, Publish("t", b"x", 2, packet_id=5))
    bench.commit()
    assert writer.take() == [pubrec(5)]
    assert reader.payloads() == [b"x"]
    bench.send(other, Publish("t", b"y", 1, packet_id=1))
    bench.send(writer, pubrel(5))
    bench.send(reader, pubrec(1))
    assert (writer.take(), reader.take(), other.take()) == ([pubcomp(5)], [pubrel(1)], [])


def test_pubrel_waits_until_it_is_known_that_the_client_has_the_message() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader = bench.join("r", clean=False)
    bench.send(reader, Subscribe(1, [SubscriptionRequest("t", 2)]))
    store.finish()
    reader.take()
    bench.publish("t", b"x", qos=2)
    store.finish()
    [message] = reader.take_messages()
    bench.send(reader, pubrec(message.packet_id))
    assert reader.take() == []
    store.finish()
    assert reader.take() == [pubrel(message.packet_id)]


def test_a_failing_store_takes_nothing_that_must_last_and_goes_on_with_the_rest() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader, writer, earlier = (bench.join(name) for name in ("r", "w", "e"))
    bench.send(reader, Subscribe(1, [SubscriptionRequest("t", 1)]))
    store.finish()
    reader.take()
    bench.send(earlier, Publish("t", b"pending", 1, packet_id=1))
    store.trouble = "no space left"
    bench.send(writer, Publish("t", b"refused", 1, packet_id=1))
    assert writer.take() == []
    assert writer.closed == ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    other = bench.connect("o")
    bench.send(other, Publish("t", b"plain"))
    assert reader.payloads() == [b"plain"]
    refused = bench.connect("p", clean=False)
    assert refused.take() == [Connack(False, ReasonCode.SERVER_UNAVAILABLE)]
    store.trouble = ""
    store.finish()
    assert earlier.take() == [puback(1)]
    assert reader.payloads() == [b"pending"]
    assert bench.core.counters.store_refusals == 1


def test_a_client_without_a_record_subscribes_while_the_store_fails_and_misses_nothing_that_waits() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer, reader, again = (bench.join(name) for name in ("w", "r", "a"))
    bench.send(again, Subscribe(1, [SubscriptionRequest("+", 1)]))
    store.finish()
    again.take()
    bench.send(writer, *(Publish(topic_name, b"old", 1, True, packet_id=1) for topic_name in ("a", "kept", "cleared")))
    store.finish()
    bench.send(writer, *(Publish(topic_name, b"new", 1, True, packet_id=1) for topic_name in ("a", "b")))
    bench.send(writer, Publish("cleared", b"", 1, True, packet_id=1))
    bench.turn()
    again.take()
    store.trouble = "no space left"
    bench.send(reader, Subscribe(1, [SubscriptionRequest("+", 1)]), Unsubscribe(2, ["x"]))
    suback, only, unsuback = reader.take()
    assert (suback, unsuback) == (Suback(1, [1]), Unsuback(2, [ReasonCode.NO_SUBSCRIPTION_EXISTED]))
    assert isinstance(only, Publish)
    assert (only.topic_name, only.payload, only.retain) == ("kept", b"old", True)
    bench.send(again, Subscribe(3, [SubscriptionRequest("+", 0)]))
    assert again.take()[0] == Suback(3, [0])
    store.trouble = ""
    while store.done is not None:
        store.finish()
        bench.turn()
    assert [(m.topic_name, m.payload, m.retain) for m in reader.take_messages()] == [
        ("a", b"new", False),
        ("b", b"new", False),
    ]
    assert [(m.topic_name, m.payload) for m in again.take_messages()] == [
        ("a", b"new"),
        ("b", b"new"),
        ("cleared", b""),
    ]


def test_a_qos_2_message_that_was_refused_by_the_store_may_be_sent_again() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w", clean=False)
    store.trouble = "no space left"
    bench.send(writer, Publish("t", b"x", 2, packet_id=1))
    assert writer.closed is not None
    store.trouble = ""
    while store.done is not None:
        store.finish()
        bench.turn()
    again = bench.join("w", clean=False)
    reader = bench.join("r")
    bench.send(reader, Subscribe(1, [SubscriptionRequest("t", 2)]))
    store.finish()
    reader.take()
    bench.send(again, Publish("t", b"x", 2, dup=True, packet_id=1))
    store.finish()
    assert reader.payloads() == [b"x"]


def test_a_will_on_a_failing_store_harms_nobody() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w", will=Will("t", b"gone", 1))
    store.trouble = "no space left"
    bench.lose(writer)
    assert bench.core.counters.store_refusals == 1


def test_a_connection_lost_before_its_connack_leaves_no_trace() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    link = bench.connect("c", clean=False)
    bench.lose(link)
    store.finish()
    assert link.take() == []
    assert bench.core.counters.clients_connected == 0


@v311("MQTT-3.1.4-2")
def test_a_takeover_while_connack_waits_ends_the_first() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    first = bench.connect("c", clean=False)
    second = bench.connect("c", clean=False)
    store.finish()
    bench.turn()
    store.finish()
    assert first.take() == []
    assert first.closed == ReasonCode.SESSION_TAKEN_OVER
    assert second.take() == [Connack(True)]
    assert bench.core.counters.clients_connected == 1


def test_a_large_group_is_released_in_order_in_several_turns_and_the_next_group_waits_for_it() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    reader, writer, other = (bench.join(name) for name in ("r", "w", "o"))
    bench.subscribed(reader, "t", 1)
    count = 2 * DELIVERIES_A_TURN
    payloads = [b"%d" % number for number in range(count)]
    bench.send(writer, *(Publish("t", payload, 1, packet_id=1) for payload in payloads), turn=False)
    bench.core.end_turn()
    bench.send(other, Publish("t", b"behind", 1, packet_id=1))
    assert store.done is not None
    store.finish()
    first = writer.take()
    assert 0 < len(first) < count
    assert other.take() == []
    assert bench.core.end_turn()
    assert store.done is None, "the next group is committed when this one is released"
    bench.turn()
    bench.commit()
    assert len(first) + len(writer.take()) == count
    assert other.take() == [puback(1)]
    received = []
    while messages := reader.take_messages():  # as the window allows
        received += [message.payload for message in messages]
        bench.send(reader, *(puback(message.packet_id) for message in messages))
        bench.commit()
    assert received == [*payloads, b"behind"]


def test_a_ping_does_not_overtake_an_answer_that_is_released_in_a_later_turn() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    client = bench.join("c")
    requests = [SubscriptionRequest(f"t/{number}", 0) for number in range(2 * DELIVERIES_A_TURN // SUBACK_WEIGHT)]
    for packet_id, request in enumerate(requests, 1):
        bench.send(client, Subscribe(packet_id, [request]), turn=False)
    bench.core.end_turn()
    store.finish()
    bench.send(client, Pingreq(), turn=False)
    assert not any(isinstance(packet, Pingresp) for packet in client.got)
    bench.turn()
    bench.commit()
    answers = client.take()
    assert isinstance(answers[-1], Pingresp)
    assert [answer.packet_id for answer in answers if isinstance(answer, Suback)] == list(range(1, len(requests) + 1))


def test_the_core_is_behind_while_much_waits_to_be_released() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    client = bench.join("c")
    assert not bench.core.is_behind()
    refused = [SubscriptionRequest("/".join("a" * 1_000), 0)] * WEIGHT_MAX
    bench.send(client, Subscribe(1, refused))
    assert not bench.core.is_behind(), "a refused subscription has no retained messages"
    bench.send(client, Subscribe(2, [SubscriptionRequest("t", 0)] * (WEIGHT_MAX // SUBACK_WEIGHT + 1)))
    assert bench.core.is_behind()
    bench.commit()
    assert not bench.core.is_behind()
