"""The counters as `$SYS` topics: every counter is shown, and only what has changed is published."""

from embermq.broker.counters import Counters, SysTopics, sys_values
from embermq.protocol.packets import Will
from support.attributes import attributes_of
from support.core import Bench


def test_the_servers_own_topics_are_there_for_a_new_subscriber_and_for_nobody_elses_wildcard() -> None:
    bench = Bench()
    bench.core.report()
    client = bench.join()
    bench.subscribed(client, "#")
    assert client.take_messages() == []
    bench.subscribed(client, "$SYS/broker/version")
    [message] = client.take_messages()
    assert (message.payload, message.retain) == (b"EmberMQ test", True)


def test_share_groups_and_delayed_wills_are_counted() -> None:
    bench = Bench()
    member = bench.join("member")
    bench.subscribed(member, "$share/g/t")
    leaving = bench.join("leaving", clean=False, will=Will("w", b"gone", delay_s=60))
    bench.lose(leaving)
    values = bench.core.counter_values()
    assert (values["share-groups/count"], values["wills/pending"]) == (1, 1)
    bench.pass_s(61)
    bench.lose(member)
    values = bench.core.counter_values()
    assert (values["share-groups/count"], values["wills/pending"]) == (0, 0)


def values_of(counters: Counters) -> dict[str, str]:
    return sys_values(
        counters,
        version="1",
        uptime_s=1,
        sessions=0,
        subscriptions=0,
        share_groups=2,
        wills_pending=3,
        retained=(0, 0),
        store_state="ok",
        store_counts={"log/unread-bytes": 5},
    )


def test_every_counter_changes_a_topic() -> None:
    counters = Counters()
    before = values_of(counters)
    for name in attributes_of(counters):
        # What is counted by QoS or reason is for the metrics of the HTTP interface.
        if name not in ("others", "refusals") and not name.endswith(("_1", "_2")):
            setattr(counters, name, 7)
            after = values_of(counters)
            assert after != before, name
            before = after


def test_a_transport_and_the_store_add_topics_of_their_own() -> None:
    counters = Counters()
    counters.others.append(lambda: {"mqtt-sn/lost": 3})
    assert values_of(counters)["$SYS/broker/mqtt-sn/lost"] == "3"
    assert values_of(counters)["$SYS/broker/store/log/unread-bytes"] == "5"


def test_only_what_has_changed_is_published_again() -> None:
    topics = SysTopics()
    assert [message.topic_name for message in topics.update({"a": "1", "b": "1"})] == ["a", "b"]
    [changed] = topics.update({"a": "1", "b": "2"})
    assert (changed.topic_name, changed.payload, changed.retain) == ("b", b"2", True)
    assert [message.payload for message in topics.messages.values()] == [b"1", b"2"]
