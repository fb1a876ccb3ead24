"""SUBSCRIBE and UNSUBSCRIBE with the options and identifiers of MQTT 5."""

from pathlib import Path

import pytest

from embermq.broker.limits import Limits
from embermq.broker.subscriptions import REMOVED_AT_ONCE, REMOVED_LEVELS
from embermq.protocol.packets import Publish, Subscribe, SubscriptionRequest, Unsubscribe
from support.clauses import v5
from support.core import Bench, DiskBench
from support.stores import ScriptedStore


@v5("MQTT-3.8.3-3")
def test_no_local_spares_the_publisher_its_own_messages() -> None:
    bench = Bench()
    client = bench.join("c")
    bench.subscribe(client, "t", 1, no_local=True)
    client.take()
    bench.send(client, Publish("t", b"mine", 1, packet_id=1))
    bench.publish("t", b"theirs", qos=1)
    assert client.payloads() == [b"theirs"]


def test_a_topic_of_slashes_overflows_nothing() -> None:
    bench = Bench(limits=Limits(topic_levels_max=100_000))
    client = bench.join("c")
    slashes = "/" * 65_535
    bench.send(client, Subscribe(1, [SubscriptionRequest(slashes), SubscriptionRequest("+" + slashes[1:])]))
    client.take()
    bench.publish(slashes, b"deep", retain=True)
    assert client.payloads() == [b"deep"]
    bench.subscribe(client, "#")
    assert client.payloads() == [b"deep"]
    bench.lose(client)
    assert bench.core.sessions() == []


@v5("MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("keep", [False, True])
def test_retain_as_published_keeps_the_flag_of_a_live_message(keep: bool) -> None:
    bench = Bench()
    client = bench.join()
    bench.subscribe(client, "t", retain_as_published=keep)
    client.take()
    bench.publish("t", b"x", retain=True)
    bench.publish("t", b"y", retain=False)
    assert [m.retain for m in client.take_messages()] == [keep, False]


@v5("MQTT-3.8.3-3")
def test_a_new_session_of_the_same_client_does_not_get_its_own_messages_with_no_local() -> None:
    store = ScriptedStore()
    bench = Bench(store)
    first = bench.join("c")
    bench.send(first, Publish("t", b"mine", 1, packet_id=1))
    again = bench.connect("c")
    bench.subscribe(again, "t", 1, no_local=True)
    bench.commit()
    bench.publish("t", b"theirs", qos=1)
    bench.commit()
    assert again.payloads() == [b"theirs"]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_own_message_comes_at_the_qos_and_with_the_identifiers_of_what_matches_it(
    qos: int, persistent: bool
) -> None:
    bench = Bench(ScriptedStore(late=False))
    client = bench.join("c", clean=not persistent)
    bench.subscribe(client, "t/#", 2, no_local=True, number=1)
    bench.subscribe(client, "t/a", 1, number=2)
    client.take()
    bench.send(client, Publish("t/a", b"mine", qos, packet_id=9 if qos else 0))
    assert [(m.payload, m.qos) for m in client.take_messages()] == [(b"mine", min(qos, 1))]
    assert client.take_ids() == [(2,)]
    bench.publish("t/a", b"theirs", qos=qos)
    assert [(m.payload, m.qos) for m in client.take_messages()] == [(b"theirs", qos)]
    assert sorted(client.take_ids()[0]) == [1, 2]


@v5("MQTT-3.3.4-3", "MQTT-3.3.4-4")
@pytest.mark.parametrize("granted", [0, 1])
@pytest.mark.parametrize("persistent", [False, True])
def test_live_and_retained_deliveries_have_their_identifiers(granted: int, persistent: bool) -> None:
    """A retained delivery is caused by one subscription, so it has the identifier of this one only."""
    bench = Bench(ScriptedStore())
    bench.publish("t", b"old", qos=1, retain=True)
    bench.commit()
    client = bench.join("c", clean=not persistent)
    bench.subscribe(client, "#", granted, number=5)
    bench.commit()
    assert client.take_ids() == [(5,)]
    bench.subscribe(client, "t", granted, number=6)
    bench.commit()
    assert client.take_ids() == [(6,)]
    bench.publish("t", b"new", qos=1)
    bench.commit()
    assert [sorted(ids) for ids in client.take_ids()] == [[5, 6]]
    bench.subscribe(client, "t", granted, retain_handling=2)
    bench.commit()
    bench.publish("t", b"without", qos=1)
    bench.commit()
    assert client.take_ids() == [(5,)]


def test_what_the_server_says_of_itself_has_the_identifier() -> None:
    bench = Bench()
    bench.core.report()
    client = bench.join("c")
    bench.subscribe(client, "$SYS/broker/version", number=8)
    assert client.take_ids() == [(8,)]


@v5("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11", "MQTT-3.8.4-4")
@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling_goes_by_whether_the_subscription_existed(handling: int, first: int, again: int) -> None:
    bench = Bench()
    bench.publish("t", b"retained", retain=True)
    client = bench.join("c")
    bench.subscribe(client, "t", retain_handling=handling)
    assert len(client.take_messages()) == first
    bench.subscribe(client, "t", 1, retain_handling=handling)
    assert len(client.take_messages()) == again
    bench.send(client, Unsubscribe(3, ["t"]))
    bench.subscribe(client, "t", retain_handling=handling)
    assert len(client.take_messages()) == first


@v5("MQTT-3.8.4-5", "MQTT-3.8.4-6")
def test_a_filter_twice_in_one_subscribe_existed_the_second_time() -> None:
    bench = Bench()
    bench.publish("t", b"retained", retain=True)
    client = bench.join("c")
    requests = [SubscriptionRequest("t", retain_handling=1), SubscriptionRequest("t", 1, retain_handling=1)]
    bench.send(client, Subscribe(4, requests))
    assert len(client.take_messages()) == 1


def test_options_and_identifiers_of_a_persistent_session_are_there_after_a_restart(tmp_path: Path) -> None:
    bench = DiskBench(tmp_path / "data")
    client = bench.join("c", clean=False)
    bench.subscribe(client, "t/#", 1, no_local=True, retain_as_published=True, number=11)
    bench.subscribe(client, "t/a", 1, number=12)
    bench.commit()
    bench.lose(client)
    bench.publish("t/a", b"queued", qos=1, retain=True)
    bench.commit()
    bench = bench.restarted()
    client = bench.join("c", clean=False)
    assert [(m.payload, m.retain) for m in client.take_messages()] == [(b"queued", True)]
    assert [sorted(ids) for ids in client.take_ids()] == [[11, 12]]
    bench.send(client, Publish("t/b", b"own", 1, packet_id=1))
    bench.publish("t/b", b"live", qos=1)
    bench.commit()
    assert client.payloads() == [b"live"]
    assert client.take_ids() == [(11,)]
    bench.journal.close()


def test_a_session_with_many_subscriptions_ends_in_several_turns_and_gets_nothing_meanwhile() -> None:
    bench = Bench(ScriptedStore(late=False))
    client, other = bench.join("c", clean=False), bench.join("o")
    filters = [f"{number}/+" for number in range(REMOVED_LEVELS)]
    bench.send(client, Subscribe(1, [SubscriptionRequest(each, 1) for each in filters]))
    bench.send(client, Subscribe(2, [SubscriptionRequest("$share/g/0/+", 1), SubscriptionRequest("#", 2)]))
    bench.subscribe(other, "0/+", 1)
    bench.publish("0/a", b"live", qos=1)
    client.take(), other.take()
    again = bench.connect("c", turn=False)  # Clean Start: the older session ends
    bench.core.end_turn()
    assert 0 < bench.core.subscription_count() < len(filters)
    bench.core.receive(again, [Publish("0/a", b"x", 1, packet_id=7)], bench.now_ms)
    bench.turn()
    assert bench.core.subscription_count() == 1
    assert bench.core.share_groups() == []
    assert (client.payloads(), again.payloads(), other.payloads()) == ([], [], [b"x"])
    bench.publish("0/a", b"y", qos=1)
    assert other.payloads() == [b"y"]
    assert [session.client_id for session in bench.core.sessions()] == ["o", "c"]


@pytest.mark.parametrize("turns", [0, 1])
def test_a_crash_while_a_large_session_is_removed_leaves_none_of_it(tmp_path: Path, turns: int) -> None:
    bench = DiskBench(tmp_path / "data")
    client = bench.join("c", clean=False)
    filters = [f"{number}/a" for number in range(REMOVED_AT_ONCE + 1)]
    bench.send(client, Subscribe(1, [SubscriptionRequest(each, 1) for each in ["$share/g/t", *filters]]))
    bench.commit()
    bench.core.end_session(bench.core.sessions()[0])
    durable: list[bool] = []
    bench.core.when_durable(lambda: durable.append(True))
    for _ in range(turns):
        bench.core.end_turn()
    bench.core.tick(bench.now_ms, bench.now_ms * 1000)  # commits
    while not durable:
        bench.calls.get(timeout=60)()
    after = bench.crashed()
    assert after.core.sessions() == []
    assert after.core.subscription_count() == 0
    assert after.core.share_groups() == []
    after.commit()
    after.journal.close()
