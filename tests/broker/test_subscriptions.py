"""The trie agrees with the rules of matching, leaves nothing behind, and merges what overlaps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.broker.limits import Limits
from embermq.broker.subscriptions import Routes, Subscription
from embermq.protocol.packets import Publish, Subscribe, SubscriptionRequest
from embermq.protocol.topics import check_topic_filter, check_topic_name, matches
from support.clauses import v311
from support.core import Bench, new_session

LEVELS = st.sampled_from(["", "a", "b", "$x", "+", "#", "long level"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(lambda f: check_topic_filter(f) is None)
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(lambda n: check_topic_name(n) is None)


@v311("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.2-1")
@settings(deadline=None)
@given(st.lists(FILTERS, max_size=8), st.lists(NAMES, max_size=5))
def test_a_route_is_what_matching_filter_by_filter_says(filters: list[str], names: list[str]) -> None:
    trie = Routes()
    owners = {topic_filter: new_session(topic_filter) for topic_filter in filters}
    for name in names:
        assert trie.route(name).receivers == []
    for topic_filter, owner in owners.items():
        trie.add(Subscription(owner, topic_filter, 1))
    for name in names:
        reached = {subscription.topic_filter for subscription in trie.route(name).receivers}
        assert reached == {topic_filter for topic_filter in owners if matches(topic_filter, name)}
    assert trie.count == len(owners)
    for topic_filter, owner in owners.items():
        trie.remove(owner, topic_filter)
    assert trie.count == 0
    for name in names:
        assert trie.route(name).receivers == []
    assert trie._root.children == {}


@v311("MQTT-3.3.5-1")
def test_overlapping_subscriptions_of_one_session_are_one_at_the_highest_qos() -> None:
    trie = Routes()
    client = new_session()
    for topic_filter, qos in (("a/#", 0), ("a/b", 2), ("+/b", 1)):
        trie.add(Subscription(client, topic_filter, qos))
    [merged] = trie.route("a/b").receivers
    assert merged.qos == 2


def test_removing_what_was_never_there_changes_nothing() -> None:
    trie = Routes()
    client, other = new_session(), new_session("other")
    trie.add(Subscription(client, "a/b", 1))
    trie.remove(other, "a/b")
    trie.remove(client, "a/b/c")
    trie.remove(client, "a/#")
    assert trie.count == 1
    assert len(trie.route("a/b").receivers) == 1


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


@pytest.mark.parametrize("keep", [False, True])
def test_retain_as_published_keeps_the_flag_of_a_live_message(keep: bool) -> None:
    bench = Bench()
    client = bench.join()
    bench.subscribe(client, "t", retain_as_published=keep)
    client.take()
    bench.publish("t", b"x", retain=True)
    bench.publish("t", b"y", retain=False)
    assert [m.retain for m in client.take_messages()] == [keep, False]
