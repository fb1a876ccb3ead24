"""The trie agrees with the rules of matching, leaves nothing behind, and merges what overlaps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.broker.access import Identity
from embermq.broker.counters import Counters
from embermq.broker.delivery import Outbound
from embermq.broker.session import Session
from embermq.broker.subscriptions import Routes, Subscription
from embermq.protocol.topics import check_topic_filter, check_topic_name, matches
from support.clauses import v311

LEVELS = st.sampled_from(["", "a", "b", "$x", "+", "#", "long level"])
FILTERS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(lambda f: check_topic_filter(f) is None)
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map("/".join).filter(lambda n: check_topic_name(n) is None)


def session(name: str = "c") -> Session:
    return Session(name, 0, Identity("", name), Outbound(None, 10, 10, Counters()))


@v311("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.2-1")
@settings(deadline=None)
@given(st.lists(FILTERS, max_size=8), st.lists(NAMES, max_size=5))
def test_a_route_is_what_matching_filter_by_filter_says(filters: list[str], names: list[str]) -> None:
    trie = Routes()
    owners = {topic_filter: session(topic_filter) for topic_filter in filters}
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
    client = session()
    for topic_filter, qos in (("a/#", 0), ("a/b", 2), ("+/b", 1)):
        trie.add(Subscription(client, topic_filter, qos))
    [merged] = trie.route("a/b").receivers
    assert merged.qos == 2


def test_removing_what_was_never_there_changes_nothing() -> None:
    trie = Routes()
    client, other = session(), session("other")
    trie.add(Subscription(client, "a/b", 1))
    trie.remove(other, "a/b")
    trie.remove(client, "a/b/c")
    trie.remove(client, "a/#")
    assert trie.count == 1
    assert len(trie.route("a/b").receivers) == 1
