"""What may be published and subscribed to, and the cache of admitted topic names."""

import pytest

from embermq.broker.access import Identity
from embermq.broker.admission import (
    CACHE_RECEIVERS_MAX,
    CACHE_TOPIC_LENGTH_MAX,
    CACHE_TOPICS_MAX,
    Admission,
    Refusal,
)
from embermq.broker.limits import Limits
from embermq.broker.routes import Routes
from embermq.broker.session import Subscription, subscription_bytes
from embermq.broker.shapes import BEGINNINGS_MAX
from embermq.protocol.packets import Publish, Suback, Subscribe, SubscriptionRequest, Unsubscribe
from embermq.protocol.reasons import ReasonCode
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.memory import MemoryStore
from support.acknowledgements import puback
from support.core import Bench, ScriptedAccess, ScriptedLink, new_context, new_session

CLIENT = Identity("", "c")


def admission_of(
    topics_max: int = CACHE_TOPICS_MAX, receivers_max: int = CACHE_RECEIVERS_MAX
) -> tuple[Admission, Routes]:
    context = new_context(Limits(topic_levels_max=3))
    return Admission(context, topics_max=topics_max, receivers_max=receivers_max), context.routes


def test_the_cache_is_bounded_by_receivers_by_names_and_by_length() -> None:
    admission, routes = admission_of(topics_max=15, receivers_max=1_000)
    clients = [new_session() for _ in range(50)]
    for each in clients:
        routes.add(Subscription(each, "#", 0))
    for n in range(500):
        assert len(admission.route(f"t/{n}").receivers) == 50
        assert len(admission.admitted) <= 15
    fewer_names, routes = admission_of(receivers_max=500)
    for each in clients:
        routes.add(Subscription(each, "#", 0))
    for n in range(100):
        fewer_names.route(f"t/{n}")
        assert len(fewer_names.admitted) <= 10
    long_name = "x" * (CACHE_TOPIC_LENGTH_MAX + 1)
    assert len(admission.route(long_name).receivers) == 50
    assert long_name not in admission.admitted


@pytest.mark.parametrize("topic_filter", ["t/1", "t/+", "#"])
def test_a_subscription_that_comes_or_goes_changes_a_cached_route_at_once(topic_filter: str) -> None:
    admission, routes = admission_of()
    client = new_session()
    assert admission.route("t/1").receivers == []
    routes.add(Subscription(client, topic_filter, 0))
    assert [receiver.session for receiver in admission.route("t/1").receivers] == [client]
    routes.remove(client, topic_filter)
    assert admission.route("t/1").receivers == []


@pytest.mark.parametrize("topic_name", ["$SYS/broker/uptime", "a/b/c/d"])
def test_a_name_that_can_be_routed_is_not_admitted_by_that(topic_name: str) -> None:
    admission, routes = admission_of()
    routes.add(Subscription(new_session(), topic_name, 0))
    assert len(routes.route(topic_name).receivers) == 1
    assert admission.refusal("c", CLIENT, Publish(topic_name, b"x")) == ReasonCode.TOPIC_NAME_INVALID
    assert topic_name not in admission.admitted


def test_every_refusal_is_reported_with_client_topic_and_reason() -> None:
    refusals: list[Refusal] = []
    bench = Bench(
        MemoryStore([RetainedBudget("open/#", count_max=1)]),
        Limits(topic_levels_max=3, subscriptions_max=1),
        ScriptedAccess("open", may_retain=True),
        report_refusal=refusals.append,
    )
    client = bench.join("c")
    bench.send(client, Publish("closed", b"x"), Publish("closed", b"x", 0, True))
    bench.send(client, Publish("open/2/3/4", b"x", 1, packet_id=1))
    bench.send(client, Publish("open/1", b"x", 0, True), Publish("open/2", b"x", 0, True), Publish("open/2", b"x"))
    asked = ["closed", "$share/g", "open/+/+/+", "open/1", "open/2", "open/1"]
    bench.send(client, Subscribe(2, [SubscriptionRequest(topic_filter) for topic_filter in asked]))
    found = [(r.packet_name, r.client_id, r.topic, r.reason, r.detail) for r in refusals]
    assert found == [
        ("PUBLISH", "c", "closed", 0x87, "no right to publish"),
        ("PUBLISH", "c", "closed", 0x87, "no right to retain"),
        ("PUBLISH", "c", "open/2/3/4", 0x90, "more levels than limits.topic_levels_max"),
        ("PUBLISH", "c", "open/2", 0x97, bench.store.retained.admits("open/2", 1)),
        ("SUBSCRIBE", "c", "closed", 0x87, "no right to read all that it can match"),
        ("SUBSCRIBE", "c", "$share/g", 0x8F, "not $share/name/filter"),
        ("SUBSCRIBE", "c", "open/+/+/+", 0x8F, "more levels than limits.topic_levels_max"),
        ("SUBSCRIBE", "c", "open/2", 0x97, "limits.subscriptions_max is reached"),
    ]


def test_other_names_that_begin_with_a_dollar_are_admitted() -> None:
    admission, _ = admission_of()
    assert admission.refusal("c", CLIENT, Publish("$data/x", b"x")) is None


def test_limits_bite_at_their_number_and_not_before() -> None:
    bench = Bench(limits=Limits(subscriptions_max=2, topic_levels_max=3))
    client = bench.join("c")
    asked = [SubscriptionRequest(f) for f in ("a/b/c", "b", "a/b/c/d", "c", "b")]
    bench.send(client, Subscribe(1, asked))
    quota = ReasonCode.QUOTA_EXCEEDED
    assert client.take() == [Suback(1, [0, 0, quota, quota, 0], "limits.subscriptions_max is reached")]
    bench.send(client, Publish("a/b/c/d", b"", 1, packet_id=1), Publish("a/b/c", b"", 1, packet_id=2))
    assert client.take()[:2] == [puback(1, ReasonCode.TOPIC_NAME_INVALID), Publish("a/b/c", b"")]


@pytest.mark.parametrize("retain", [False, True])
def test_nobody_else_speaks_for_the_server(retain: bool) -> None:
    bench = Bench()
    client = bench.join()
    bench.subscribed(client, "$SYS/#")
    bench.core.report()
    client.take()
    for packet_id, topic_name in enumerate(("$SYS/broker/version", "$SYS/broker/mine"), 1):
        bench.send(client, Publish(topic_name, b"mine", 1, retain, packet_id=packet_id))
        assert client.take() == [puback(packet_id, 0x90)]
    assert bench.core.counters.dropped_topic_refused == 2


@pytest.mark.parametrize("limit", ["subscription_bytes_max", "all_subscription_bytes_max"])
def test_subscriptions_are_bounded_in_bytes_and_free_what_they_took(limit: str) -> None:
    room = 3 * subscription_bytes("a/0")
    bench = Bench(limits=Limits(**{limit: room}))
    client, other = bench.join("c"), bench.join("o")

    def reasons(link: ScriptedLink, *names: str) -> list[int]:
        bench.send(link, Subscribe(1, [SubscriptionRequest(name, 1) for name in names]))
        return [reason for packet in link.take() if isinstance(packet, Suback) for reason in packet.reasons]

    quota = ReasonCode.QUOTA_EXCEEDED
    assert reasons(client, "a/0", "a/1", "a/2", "a/3") == [1, 1, 1, quota]
    assert reasons(client, "a/1") == [1]  # it is there already
    assert reasons(other, "a/0") == ([1] if limit == "subscription_bytes_max" else [quota])
    bench.send(client, Unsubscribe(2, ["a/0"]))
    assert reasons(client, "a/3", "a/4") == [1, quota]
    bench.lose(client)
    bench.lose(other)
    again = bench.join("again")
    assert reasons(again, "a/0", "a/1", "a/2", "a/3") == [1, 1, 1, quota]


@pytest.mark.parametrize("prefix", ["", "$share/group/"])
def test_wildcards_of_one_client_at_different_levels_are_bounded(prefix: str) -> None:
    bench = Bench(limits=Limits(share_groups_max=10_000))
    client, other = bench.join("c"), bench.join("o")
    masks = [f"{number:012b}" for number in range(1, 1 << 10)]
    filters = [prefix + "/".join("+" if bit == "1" else "a" for bit in mask) for mask in masks]

    def granted(link: ScriptedLink, names: list[str]) -> list[str]:
        bench.send(link, Subscribe(1, [SubscriptionRequest(name) for name in names]))
        [suback] = [packet for packet in link.take() if isinstance(packet, Suback)]
        assert set(suback.reasons) <= {0, ReasonCode.QUOTA_EXCEEDED}
        return [name for name, reason in zip(names, suback.reasons, strict=True) if reason == 0]

    taken = granted(client, filters)
    assert BEGINNINGS_MAX // 12 < len(taken) < len(filters)
    assert granted(client, filters) == taken
    assert granted(client, [f"{prefix}a/{number}" for number in range(100)]) != []  # without a wildcard
    assert granted(other, filters) == taken
    # What is gone makes room for others.
    bench.send(client, Unsubscribe(2, taken))
    client.take()
    rest = [name for name in filters if name not in taken]
    assert granted(client, rest) != []
