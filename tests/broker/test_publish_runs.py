"""Runs of messages of one client, from the read to the release. Random scripts are in test_runs.py."""

import pytest

from embermq.broker.delivery import RUN_MESSAGES_MAX
from embermq.broker.limits import Limits
from embermq.protocol.packets import Packet, Publish
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import is_puback, puback, pubrec
from support.core import Bench
from support.stores import ScriptedStore


def run_of(count: int, qos: int, topic_name: str = "t") -> list[Packet]:
    return [Publish(topic_name, b"%d" % number, qos, packet_id=number) for number in range(1, count + 1)]


def test_a_run_is_delivered_in_its_order_and_acknowledged_after_the_commit() -> None:
    for qos, answer in ((1, puback), (2, pubrec)):
        store = ScriptedStore()
        bench = Bench(store)
        writer, readers = bench.join("w"), [bench.join(f"r{granted}") for granted in range(3)]
        for granted, reader in enumerate(readers):
            bench.subscribed(reader, "t", granted)
        bench.send(writer, *run_of(5, qos))
        assert (writer.take(), writer.waiting) == ([], 5)
        assert bench.core.connections.sessions["w"].pending == 5
        bench.commit()
        assert writer.take() == [answer(number) for number in range(1, 6)]
        assert [reader.payloads() for reader in readers] == [[b"1", b"2", b"3", b"4", b"5"]] * 3
        assert (writer.waiting, bench.core.connections.sessions["w"].pending) == (0, 0)


def test_a_run_without_subscribers_says_so() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w")
    bench.send(writer, *run_of(2, 1))
    bench.commit()
    reason = ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert writer.take() == [puback(1, reason), puback(2, reason)]


def test_a_client_that_subscribes_to_its_own_messages_gets_each_before_its_acknowledgement() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer = bench.join("w")
    bench.subscribed(writer, "t", 1)
    bench.send(writer, *run_of(4, 1))
    bench.commit()
    kinds = [is_puback(packet) for packet in writer.take()]
    assert kinds == [False, True, False, False, False, True, True, True], "the first one is alone: it is not admitted"


def test_runs_of_two_clients_do_not_mix() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    one, other, reader = bench.join("a"), bench.join("b"), bench.join("r")
    bench.subscribed(reader, "t", 1)
    for number in (1, 2):
        for link in (one, other):
            bench.send(link, *run_of(number, 1), turn=False)
    bench.turn()
    bench.commit()
    assert one.take() == other.take() == [puback(1), puback(1), puback(2)]
    assert reader.payloads() == [b"1", b"1", b"1", b"2", b"1", b"2"]


def test_a_run_is_bounded_by_its_deliveries() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer, reader = bench.join("w"), bench.join("r")
    bench.subscribed(reader, "t", 0)
    bench.publish("t", b"", qos=1)  # from here on the topic name is admitted
    bench.commit()
    reader.take()
    bench.send(writer, *run_of(RUN_MESSAGES_MAX, 1), turn=False)
    weights = [effect.weight for effect in bench.core.effects.pending]
    assert max(weights) == RUN_MESSAGES_MAX and sum(weights) == 2 * RUN_MESSAGES_MAX
    assert writer.waiting == RUN_MESSAGES_MAX
    bench.turn()
    bench.commit()
    assert len(writer.take()) == len(reader.payloads()) == RUN_MESSAGES_MAX


def retained_run(*topic_names: str) -> list[Packet]:
    return [
        Publish(topic_name, topic_name.encode(), 1, True, packet_id=number)
        for number, topic_name in enumerate(topic_names, 1)
    ]


def test_a_retained_message_with_a_receiver_is_alone() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer, reader = bench.join("w"), bench.join("r")
    bench.subscribed(reader, "a/#", 1)
    bench.send(writer, *retained_run("a/1", "b", "a/2"), turn=False)
    assert len(bench.core.effects.pending) == 3
    bench.turn()
    bench.commit()
    assert reader.payloads() == [b"a/1", b"a/2"]
    assert not bench.core.retained._pending_publishes


def test_a_message_that_a_full_stored_queue_has_no_place_for_is_left_out_of_its_run_for_that_session() -> None:
    bench = Bench(ScriptedStore(), Limits(queue_messages_max=4))
    writer, other = bench.join("w"), bench.join("o")
    bench.subscribed(bench.join("r", clean=False), "t", 1)
    bench.subscribed(other, "t", 1)
    bench.publish("t", b"0", qos=1)
    bench.commit()
    other.take()
    bench.send(writer, *run_of(6, 1), turn=False)
    assert len(bench.core.effects.pending) == 1
    bench.turn()
    bench.commit()
    stored = bench.core.connections.sessions["r"].outbound
    assert (stored.owed(), stored.dropped) == (4, 3)
    assert other.payloads() == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert len(writer.take()) == 6


def test_who_subscribes_while_retained_messages_are_pending_gets_each_once() -> None:
    for qos in (0, 1):
        store = ScriptedStore()
        bench = Bench(store)
        writer, reader = bench.join("w"), bench.join("r")
        bench.send(writer, *retained_run("a/1", "b", "a/2"))
        bench.subscribe(reader, "a/#", qos)
        bench.subscribe(writer, "b", qos)
        bench.send(writer, Publish("c", b"c", 1, True, packet_id=4))
        bench.commit()
        assert sorted(payload for payload in reader.payloads() if payload) == [b"a/1", b"a/2"]
        found = writer.take()
        assert [packet.packet_id for packet in found if is_puback(packet)] == [1, 2, 3, 4]
        assert [packet.payload for packet in found if isinstance(packet, Publish)] == [b"b"]
        assert not bench.core.retained._pending_publishes


def test_messages_that_nobody_receives_are_one_effect_whatever_their_topics() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    one, other, reader = bench.join("a"), bench.join("b"), bench.join("r")
    bench.subscribed(reader, "heard", 1)
    bench.send(one, *retained_run("a", "b", "c"), turn=False)
    bench.send(one, Publish("d", b"plain", 1, packet_id=4), Publish("e", b"plain", 1, packet_id=5), turn=False)
    bench.send(one, Publish("heard", b"heard", 1, packet_id=6), turn=False)
    bench.send(other, *retained_run("f", "a"), Publish("g", b"another", 1, True, packet_id=9), turn=False)
    assert [effect.count for effect in bench.core.effects.pending] == [3, 2, 1, 2, 1]
    assert (one.waiting, bench.core.connections.sessions["a"].pending) == (6, 6)
    bench.turn()
    bench.commit()
    nobody = ReasonCode.NO_MATCHING_SUBSCRIBERS
    assert one.take() == [*(puback(number, nobody) for number in range(1, 6)), puback(6)]
    assert other.take() == [puback(1, nobody), puback(2, nobody), puback(9, nobody)]
    assert (one.waiting, bench.core.connections.sessions["a"].pending) == (0, 0)
    assert not bench.core.retained._pending_publishes


def test_who_subscribes_while_the_store_fails_gets_what_it_asks_for_of_the_messages_that_wait_together() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    writer, reader = bench.join("w"), bench.join("r")
    bench.send(writer, *retained_run("a/1", "b", "a/2", "c/1"))
    store.trouble = "no space left"
    for topic_filter in ("+/1", "a/#", "b"):
        bench.subscribe(reader, topic_filter, 1)
    store.trouble = ""
    bench.commit()
    assert reader.payloads() == [b"a/1", b"b", b"a/2", b"c/1"]
    assert len(writer.take()) == 4


@pytest.mark.parametrize("is_late", [True, False])
def test_messages_of_a_read_are_taken_together_up_to_one_that_differs(is_late: bool) -> None:
    bench = Bench(ScriptedStore(late=is_late))
    writer, reader = bench.join("w"), bench.join("r")
    bench.subscribed(reader, "t", 2)
    bench.send(writer, Publish("t", b"", 2, packet_id=99))  # from here on the topic name is admitted
    bench.commit()
    reader.take()
    messages = [Publish("t", b"%d" % number, 2, packet_id=number) for number in (1, 2, 3, 4, 5, 7, 8, 9, 10)]
    bench.send(writer, *messages)
    bench.commit()
    assert [message.payload for message in reader.take_messages()] == [message.payload for message in messages]
    assert [count for count in reader.runs if count > 1] == [5, 4]
    session = bench.core.connections.sessions["w"]
    assert sorted(session.received_ids.ids()) == [1, 2, 3, 4, 5, 7, 8, 9, 10, 99]
    bench.send(writer, *messages[3:8], Publish("t", b"6", 2, packet_id=6))
    bench.commit()
    assert reader.payloads() == [b"6"], "the others have come before"
