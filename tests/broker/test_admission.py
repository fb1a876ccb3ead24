"""What may be published and subscribed to, and the cache of admitted topic names."""

import pytest

from embermq.broker.access import AllowAll, Identity
from embermq.broker.admission import CACHE_TOPIC_LENGTH_MAX, Admission
from embermq.broker.counters import Counters
from embermq.broker.delivery import Outbound
from embermq.broker.limits import Limits
from embermq.broker.session import Session
from embermq.broker.subscriptions import Routes, Subscription
from embermq.protocol.packets import Publish
from embermq.protocol.reasons import ReasonCode
from embermq.store.memory import MemoryStore

CLIENT = Identity("", "c")


def session(name: str = "c") -> Session:
    return Session(name, 0, Identity("", name), Outbound(None, 10, 10, Counters()))


def admission_of(routes: Routes, **options: int) -> Admission:
    return Admission(MemoryStore(), AllowAll(), Limits(topic_levels_max=3), Counters(), routes, **options)


def test_the_cache_is_bounded_by_receivers_by_names_and_by_length() -> None:
    routes = Routes()
    admission = admission_of(routes, topics_max=15, receivers_max=1_000)
    clients = [session() for _ in range(50)]
    for each in clients:
        routes.add(Subscription(each, "#", 0))
    for n in range(500):
        assert len(admission.route(f"t/{n}").receivers) == 50
        assert len(admission.admitted) <= 15
    fewer_names = admission_of(routes, receivers_max=500)
    for n in range(100):
        fewer_names.route(f"t/{n}")
        assert len(fewer_names.admitted) <= 10
    long_name = "x" * (CACHE_TOPIC_LENGTH_MAX + 1)
    assert len(admission.route(long_name).receivers) == 50
    assert long_name not in admission.admitted


@pytest.mark.parametrize("topic_filter", ["t/1", "t/+", "#"])
def test_a_subscription_that_comes_or_goes_changes_a_cached_route_at_once(topic_filter: str) -> None:
    routes = Routes()
    admission = admission_of(routes)
    client = session()
    assert admission.route("t/1").receivers == []
    routes.add(Subscription(client, topic_filter, 0))
    assert [receiver.session for receiver in admission.route("t/1").receivers] == [client]
    routes.remove(client, topic_filter)
    assert admission.route("t/1").receivers == []


@pytest.mark.parametrize("topic_name", ["$SYS/broker/uptime", "a/b/c/d"])
def test_a_name_that_can_be_routed_is_not_admitted_by_that(topic_name: str) -> None:
    routes = Routes()
    routes.add(Subscription(session(), topic_name, 0))
    admission = admission_of(routes)
    assert len(routes.route(topic_name).receivers) == 1
    assert admission.refusal("c", CLIENT, Publish(topic_name, b"x")) == ReasonCode.TOPIC_NAME_INVALID
    assert topic_name not in admission.admitted


def test_other_names_that_begin_with_a_dollar_are_admitted() -> None:
    admission = admission_of(Routes())
    assert admission.refusal("c", CLIENT, Publish("$data/x", b"x")) is None
