"""`$asof` and `$replay` in the core: what a client gets, in which order, and what is refused."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.broker.access import Identity
from embermq.broker.limits import Limits
from embermq.protocol.packets import Connect, Publish, Suback, Subscribe, SubscriptionRequest, Unsuback, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback
from support.core import Bench, ScriptedAccess
from support.history import HistoryBench, HistoryLink


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[HistoryBench]:
    bench = HistoryBench(tmp_path / "data")
    yield bench
    bench.journal.close()


def filled(bench: HistoryBench, count: int, qos: int = 1) -> list[bytes]:
    payloads = [b"%d" % number for number in range(count)]
    for number, payload in enumerate(payloads):
        bench.publish(f"plant/{number % 7}", payload, qos)
    bench.commit()
    return payloads


# -- $replay ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("clean", [True, False])
def test_a_replay_is_every_message_once_in_order_and_then_live(bench: HistoryBench, qos: int, clean: bool) -> None:
    payloads = filled(bench, 900, 2)
    client = bench.join("reader", clean=clean)
    assert bench.ask(client, "$replay/-1h/plant/#", qos) == Suback(1, [qos])
    bench.drain()
    bench.commit()
    got = bench.acknowledge(client)
    bench.until(lambda: bench.is_live(client))
    bench.publish("plant/x", b"live", qos)
    bench.commit()
    got += bench.acknowledge(client)
    assert got == [*payloads, b"live"]


def test_messages_come_at_the_lower_qos_under_their_own_names(bench: HistoryBench) -> None:
    bench.publish("a/0", b"0", 0)
    bench.publish("a/1", b"1", 1, True)
    bench.publish("a/2", b"2", 2)
    bench.commit()
    client = bench.join("reader")
    bench.ask(client, "$replay/-1h/a/+", 1)
    bench.drain()
    got = client.take_messages()
    assert [(each.topic_name, each.qos, each.retain) for each in got] == [
        ("a/0", 0, False),
        ("a/1", 1, False),
        ("a/2", 1, False),
    ]


def test_retain_as_published_and_no_local_hold_in_the_log_and_live(bench: HistoryBench) -> None:
    client = bench.join("reader")
    bench.send(client, Publish("a", b"own", 0), Publish("a", b"own retained", 0, True))
    bench.publish("a", b"theirs", 1, True)
    bench.commit()
    client.take()
    request = SubscriptionRequest("$replay/-1h/a", 1, no_local=True, retain_as_published=True, subscription_id=9)
    bench.send(client, Subscribe(1, [request]))
    bench.commit()
    bench.until(lambda: bench.is_live(client))
    bench.send(client, Publish("a", b"own again", 0))
    bench.publish("a", b"theirs again", 1, True)
    bench.commit()
    got = client.take_messages()
    assert [(each.payload, each.retain) for each in got] == [(b"theirs", True), (b"theirs again", True)]
    assert client.take_ids() == [(9,), (9,)]


def test_a_wildcard_does_not_match_topics_with_a_dollar(bench: HistoryBench) -> None:
    bench.publish("$own/a", b"hidden", 1)
    bench.publish("b/a", b"seen", 1)
    bench.commit()
    client = bench.join("reader")
    bench.ask(client, "$replay/-1h/+/a")
    bench.ask(client, "$replay/-1h/#")
    bench.until(lambda: bench.is_live(client))
    bench.publish("$own/a", b"hidden", 0)
    assert client.payloads() == [b"seen", b"seen"]
    bench.ask(client, "$replay/-1h/$own/#")
    bench.until(lambda: bench.is_live(client))
    assert client.payloads() == [b"hidden", b"hidden"]


def test_the_bounds_in_time_are_from_on_and_before_to(bench: HistoryBench) -> None:
    for number in range(10):
        bench.publish("a", b"%d" % number, 1)
        bench.pass_s(60)
    bench.commit()
    client = bench.join("reader")
    bench.ask(client, "$replay/-8m/-5m/a")
    bench.drain()
    assert client.payloads() == [b"2", b"3", b"4"]
    session = client.session
    assert session is not None and session.history_subscriptions == 0, "it has ended"
    bench.send(client, Unsubscribe(2, ["$replay/-8m/-5m/a"]))
    bench.commit()
    assert client.take() == [Unsuback(2, [ReasonCode.NO_SUBSCRIPTION_EXISTED])]


def test_up_to_now_is_up_to_the_subscribe(bench: HistoryBench) -> None:
    bench.publish("a", b"durable", 1)
    bench.commit()
    bench.publish("a", b"not durable yet", 0)
    client = bench.join("reader")
    bench.ask(client, "$replay/-1h/now/a")
    bench.publish("a", b"later", 1)
    bench.until(lambda: client.session is not None and client.session.history_subscriptions == 0)
    assert client.payloads() == [b"durable", b"not durable yet"]


def test_a_replay_that_matches_nothing_becomes_live(bench: HistoryBench) -> None:
    filled(bench, 100)
    client = bench.join("reader")
    bench.ask(client, "$replay/-1h/elsewhere/+", 1)
    bench.until(lambda: bench.is_live(client))
    bench.publish("elsewhere/a", b"live", 0)
    assert client.payloads() == [b"live"]


def test_a_plain_subscription_beside_it_delivers_as_well(bench: HistoryBench) -> None:
    client = bench.join("reader")
    bench.ask(client, "a")
    bench.ask(client, "$replay/-1h/a")
    bench.until(lambda: bench.is_live(client))
    bench.publish("a", b"x", 0)
    assert client.payloads() == [b"x", b"x"]


def test_messages_that_have_expired_are_part_of_what_was(bench: HistoryBench) -> None:
    bench.publish("a", b"old", 1, True, expiry_s=1)
    bench.commit()
    bench.pass_s(30)
    bench.commit()
    for clean in (True, False):
        client = bench.join("reader", clean=clean)
        bench.ask(client, "$replay/-1h/now/a", 1)
        bench.drain()
        bench.commit()
        assert bench.acknowledge(client) == [b"old"]
        bench.ask(client, "$asof/-30s/a", 1)
        bench.drain()
        bench.commit()
        assert bench.acknowledge(client) == [b"old"]
        bench.ask(client, "$asof/-1s/a", 1)
        bench.drain()
        assert client.payloads() == []


def test_a_client_of_mqtt_5_is_told_offset_and_time(bench: HistoryBench) -> None:
    bench.publish("a", b"x", 1)
    bench.commit()
    link = HistoryLink(is_v5=True)
    bench.core.connect(link, Connect("five"), Identity("", "five"), "MQTT 5.0", "test")
    bench.turn()
    link.take()
    bench.ask(link, "$replay/-1h/a")
    bench.until(lambda: bench.is_live(link))
    bench.publish("a", b"y", 0)
    bench.ask(link, "$asof/now/a")
    bench.drain()
    assert len(link.properties) == 2
    first, second = link.properties
    assert b"ember-offset\x00\x011&" in first and b"ember-time\x00\x1b2023-11-14T22:13:20" in first
    assert b"ember-offset" in second and second != first


# -- slow readers and hand-over --------------------------------------------------------------------------------------


def test_a_slow_reader_loses_nothing_of_the_log_and_goes_on_where_it_was(bench: HistoryBench) -> None:
    payloads = filled(bench, 600, 0)
    client = bench.join("reader", room=7)
    bench.ask(client, "$replay/-1h/plant/#", 0)
    got: list[bytes] = []
    for room in (3, 0, 50, 1_000_000):
        bench.drain()
        got += client.payloads()
        client.room = room
        bench.core.writable(client)
    bench.until(lambda: bench.is_live(client))
    assert got + client.payloads() == payloads


def test_a_client_that_falls_behind_live_messages_gets_them_from_the_log(bench: HistoryBench) -> None:
    client = bench.join("reader", receive_maximum=5)
    bench.ask(client, "$replay/-1h/plant/#", 1)
    bench.until(lambda: bench.is_live(client))
    payloads = filled(bench, 50)
    assert not bench.is_live(client)
    session = client.session
    assert session is not None and len(session.outbound.backlog) == 0, "nothing waits in memory"
    bench.drain()
    assert bench.acknowledge(client) == payloads
    bench.pass_s(5)
    bench.publish("plant/x", b"live", 1)
    bench.commit()
    bench.until(lambda: bench.is_live(client))
    assert bench.acknowledge(client) == [b"live"]
    assert bench.core.counters.dropped() == 0


def test_the_history_subscriptions_of_a_client_take_turns(bench: HistoryBench) -> None:
    filled(bench, 700)
    client = bench.join("reader", receive_maximum=5)
    for number in range(3):
        bench.ask(client, f"$replay/-1h/plant/{number}", 1)
    got: Counter[str] = Counter()
    for _ in range(30):
        bench.drain()
        messages = client.take_messages()
        got.update(each.topic_name for each in messages)
        bench.send(client, *(puback(each.packet_id) for each in messages))
        bench.commit()
    assert got.total() == 150
    assert min(got[f"plant/{number}"] for number in range(3)) >= 40, got


def test_live_messages_keep_the_order_of_offsets(bench: HistoryBench) -> None:
    client = bench.join("reader")
    bench.ask(client, "$replay/-1h/#", 1)
    bench.until(lambda: bench.is_live(client))
    bench.publish("a", b"waits for the disk", 1)
    bench.publish("a", b"does not", 0)
    assert client.payloads() == []
    bench.commit()
    assert client.payloads() == [b"waits for the disk", b"does not"]


# -- $asof -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_as_of_is_the_whole_retained_set_of_then_once(bench: HistoryBench, qos: int) -> None:
    for number in range(700):
        bench.publish(f"state/{number:03}", b"then", 1, True)
    bench.publish("state/000", b"", 1, True)
    bench.commit()
    bench.pass_s(60)
    for number in range(0, 700, 3):
        bench.publish(f"state/{number:03}", b"now", 1, True)
    bench.publish("state/new", b"now", 1, True)
    bench.commit()
    client = bench.join("reader")
    assert bench.ask(client, "$asof/-30s/state/#", qos) == Suback(1, [qos])
    bench.drain()
    got: dict[str, bytes] = {}
    while messages := client.take_messages():
        for message in messages:
            assert message.retain and message.topic_name not in got
            got[message.topic_name] = message.payload
        bench.send(client, *[puback(message.packet_id) for message in messages if message.qos])
        bench.drain()
    assert got == {f"state/{number:03}": b"then" for number in range(1, 700)}
    bench.publish("state/500", b"live", 1, True)
    bench.commit()
    assert client.payloads() == []


def test_as_of_now_has_what_was_retained_before_the_subscribe_and_nothing_later(bench: HistoryBench) -> None:
    client = bench.join("reader")
    bench.publish("a", b"before", 1, True)
    bench.send(client, Subscribe(1, [SubscriptionRequest("$asof/now/#", 0)]), turn=False)
    bench.publish("a", b"after", 1, True)
    bench.publish("b", b"after", 1, True)
    bench.commit()
    bench.drain()
    assert client.take()[1:] == [Publish("a", b"before", 0, True)]


# -- refusals --------------------------------------------------------------------------------------------------------


def test_bad_filters_are_refused_with_a_reason_and_the_connection_stays(bench: HistoryBench) -> None:
    client = bench.join("reader")
    requests = ["$replay/5/a", "$share/g/$replay/-1h/a", "plain", "$replay/-1h/" + "a/" * 128, "$asof/now/a"]
    bench.send(client, Subscribe(1, [SubscriptionRequest(each) for each in requests]))
    bench.commit()
    suback = client.got.pop(0)
    assert isinstance(suback, Suback)
    invalid = ReasonCode.TOPIC_FILTER_INVALID
    assert suback.reasons == [invalid, invalid, 0, invalid, 0]
    assert "'5' is not an instant" in suback.reason_string
    assert "a history subscription cannot be shared" in suback.reason_string
    assert "limits.topic_levels_max" in suback.reason_string
    assert client.closed is None


def test_a_filter_may_have_all_levels_behind_the_instants(bench: HistoryBench) -> None:
    deep = "/".join(["a"] * 128)
    bench.publish(deep, b"x", 1)
    bench.commit()
    client = bench.join("reader")
    assert bench.ask(client, f"$replay/-1h/now/{deep}").reasons == [0]
    bench.drain()
    assert client.payloads() == [b"x"]


def test_there_are_so_many_for_a_client_and_for_all(tmp_path: Path) -> None:
    bench = HistoryBench(tmp_path / "data", Limits(history_subscriptions_max=2, all_history_subscriptions_max=3))
    one, other = bench.join("one"), bench.join("other")
    bench.send(one, Subscribe(1, [SubscriptionRequest(f"$replay/-1h/{each}") for each in "abc"]))
    bench.send(other, Subscribe(1, [SubscriptionRequest(f"$replay/-1h/{each}") for each in "ab"]))
    bench.commit()
    quota = ReasonCode.QUOTA_EXCEEDED
    assert one.got.pop(0) == Suback(1, [0, 0, quota], "limits.history_subscriptions_max is reached")
    assert other.got.pop(0) == Suback(1, [0, quota], "limits.all_history_subscriptions_max is reached")
    assert bench.ask(one, "$replay/-1h/a").reasons == [0], "the same again takes the place of the first"
    bench.send(one, Unsubscribe(2, ["$replay/-1h/b"]))
    bench.commit()
    assert Unsuback(2, [0]) in one.take()
    assert bench.ask(other, "$replay/-1h/b").reasons == [0]
    bench.lose(one)
    bench.lose(other)
    assert bench.core.counter_values()["history/subscriptions"] == 0
    bench.journal.close()


def test_a_store_in_memory_says_that_it_has_no_history() -> None:
    bench = Bench()
    client = bench.join("reader")
    bench.subscribe(client, "$asof/now/a")
    reason = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    assert client.take() == [Suback(1, [reason], "the store is in memory and keeps no history")]


def test_read_rights_are_those_of_the_plain_filter(tmp_path: Path) -> None:
    access = ScriptedAccess("open/")
    bench = HistoryBench(tmp_path / "data")
    bench.core = type(bench.core)(bench.journal, access, Limits(), lambda: None, bench.bug, "test", "seed")
    bench.publish("open/a", b"x", 1)
    bench.commit()
    client = bench.join("reader")
    assert bench.ask(client, "$replay/-1h/secret/#").reasons == [ReasonCode.NOT_AUTHORIZED]
    assert bench.ask(client, "$asof/now/#").reasons == [ReasonCode.NOT_AUTHORIZED]
    assert bench.ask(client, "$replay/-1h/open/#").reasons == [0]
    bench.drain()
    assert client.payloads() == [b"x"]
    filled(bench, 0)
    access.allowed = "elsewhere/"
    assert bench.ask(client, "$replay/-1h/open/#").reasons == [ReasonCode.NOT_AUTHORIZED]
    bench.journal.close()


# -- ends ------------------------------------------------------------------------------------------------------------


def test_unsubscribe_ends_it_in_any_state(bench: HistoryBench) -> None:
    filled(bench, 300, 0)
    client = bench.join("reader", room=10)
    for is_live in (False, True):
        bench.ask(client, "$replay/-1h/#")
        bench.drain()
        if is_live:
            bench.until(lambda: bench.is_live(client))
        client.room = 1_000_000
        bench.send(client, Unsubscribe(2, ["$replay/-1h/#"]))
        bench.commit()
        assert client.take()[-1] == Unsuback(2, [0])
        bench.publish("plant/0", b"later", 0)
        bench.drain()
        assert client.take() == []


def test_it_lasts_as_long_as_the_connection_and_what_is_in_flight_comes_again(bench: HistoryBench) -> None:
    payloads = filled(bench, 20)
    client = bench.join("reader", clean=False, receive_maximum=4)
    bench.ask(client, "$replay/-1h/plant/#", 1)
    bench.drain()
    bench.commit()
    assert client.payloads() == payloads[:4]
    bench.lose(client)
    bench.commit()
    again = bench.connect("reader", clean=False)
    bench.commit()
    assert [(each.payload, each.dup) for each in again.take_messages()] == [(each, True) for each in payloads[:4]]
    bench.publish("plant/0", b"live", 1)
    bench.commit()
    assert again.payloads() == []
    session = again.session
    assert session is not None and session.history_subscriptions == 0 and session.subscriptions == {}


def test_after_a_restart_a_persistent_session_has_no_history_subscription(tmp_path: Path) -> None:
    bench = HistoryBench(tmp_path / "data")
    client = bench.join("reader", clean=False)
    bench.ask(client, "$replay/-1h/plant/#", 1)
    bench.ask(client, "plain", 1)
    bench.commit()
    later = bench.crashed()
    session = later.core.connections.sessions["reader"]
    assert list(session.subscriptions) == ["plain"]
    later.journal.close()
