"""The trie agrees with the rules of matching, leaves nothing behind, and merges what overlaps."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.broker.routes import Routes
from embermq.broker.session import Subscription, subscription_bytes
from embermq.protocol.topics import check_topic_filter, check_topic_name, matches
from support.clauses import v5, v311
from support.core import new_session

LEVELS = st.sampled_from(["", "a", "b", "$x", "+", "#", "long level"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(lambda f: check_topic_filter(f) is None)
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(lambda n: check_topic_name(n) is None)


@v311("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.2-1")
@v5("MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-4.7.2-1")
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
@v5("MQTT-3.3.4-2")
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


@v5("MQTT-3.3.4-4")
def test_a_session_with_overlapping_subscriptions_gets_the_identifiers_of_all_and_repeated_ones() -> None:
    trie = Routes()
    client = new_session()
    for topic_filter, ids in (("a/#", (3,)), ("a/b", ()), ("+/b", (9,)), ("#", (3,))):
        trie.add(Subscription(client, topic_filter, 1, ids=ids))
    [merged] = trie.route("a/b").receivers
    assert sorted(merged.ids) == [3, 3, 9]
    [alone] = trie.route("b/b").receivers
    assert sorted(alone.ids) == [3, 9]


def test_own_messages_are_for_the_subscriptions_without_no_local_only() -> None:
    trie = Routes()
    client = new_session()
    trie.add(Subscription(client, "a/#", 2, no_local=True, retain_as_published=True, ids=(1,)))
    trie.add(Subscription(client, "a/b", 1, ids=(2,)))
    [merged] = trie.route("a/b").receivers
    assert (merged.qos, merged.retain_as_published, merged.ids) == (2, True, (1, 2))
    own = merged.own
    assert own is not None
    assert (own.qos, own.retain_as_published, own.ids) == (1, False, (2,))
    [only_no_local] = trie.route("a/c").receivers
    assert only_no_local.own is None


@pytest.mark.parametrize(
    "filters",
    [
        [f"{n}/" + "/".join("abcdefgh") for n in range(2_000)],
        ["/".join([str(n)] + ["x"] * 127) for n in range(100)],
        [f"{n}" + "y" * 60_000 for n in range(20)],
        [f"sensor/{n}/temperature" for n in range(5_000)],
    ],
    ids=["deep", "deepest", "long", "usual"],
)
def test_subscriptions_take_no_more_memory_than_is_counted_for_them(filters: list[str]) -> None:
    routes, session = Routes(), new_session()
    tracemalloc.start()
    try:
        for topic_filter in filters:
            copy = "".join(list(topic_filter))  # as it comes from a packet: a string of its own
            subscription = Subscription(session, copy, 1)
            session.add_subscription(subscription, copy)
            routes.add(subscription)
        taken_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken_bytes <= sum(map(subscription_bytes, filters))
