"""MQTT-SN 2.0 section 4.26, statement by statement, over real UDP in both drafts; and what 1.2 shares of it."""

from collections.abc import Callable

import pytest

from support.clauses import sn2
from support.sn_client import PROFILES, TWO, V12, Message, SnClient, pubwos

Sn = Callable[..., SnClient]

pytestmark = pytest.mark.parametrize("profile", TWO)


@pytest.fixture
def sn_options(profile: str) -> dict[str, object]:
    """A PUBWOS comes without a CONNECT: the listener's setting says how to read it."""
    return {"sessionless_profile": profile}


def retained(payload: bytes, qos: int = 0, topic_name: str = "a/b") -> Message:
    return Message(topic_name, payload, qos, True)


@sn2("MQTT-SN-4.26-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_publish_replaces_the_one_before(sn: Sn, profile: str, qos: int) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    publisher.publish("a/b", b"first", qos, retain=True)
    publisher.publish("a/b", b"second", qos, retain=True)
    publisher.ping()
    subscriber.subscribe("a/+", 2)
    assert subscriber.drain() == [retained(b"second", qos)]


@sn2("MQTT-SN-4.26-1")
def test_a_retained_pubwos_replaces_the_one_before(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    sender = sn(profile, connect=False)
    publisher.publish("a/b", b"first", 1, retain=True)
    sender.send_bytes(pubwos(profile, "a/b", b"second", retain=True))
    publisher.ping()
    subscriber.subscribe("a/b", 2)
    assert subscriber.drain() == [retained(b"second")]
    sender.send_bytes(pubwos(profile, "a/b", b"", retain=True))
    publisher.ping()
    assert subscriber.drain() == [Message("a/b", b"")]
    subscriber.subscribe("a/b")
    assert subscriber.drain() == []


@sn2("MQTT-SN-4.26-1")
def test_every_way_to_name_a_topic_means_one_retained_message(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    publisher.publish(1, b"by predefined alias", retain=True)
    publisher.publish("predefined/one", b"by name", 1, retain=True, how="name")
    subscriber.subscribe("predefined/#", 1)
    assert subscriber.drain() == [retained(b"by name", 1, "predefined/one")]
    publisher.publish("a/b", b"by alias", 1, retain=True, how="alias")
    publisher.publish("a/b", b"by name", 1, retain=True, how="name")
    subscriber.subscribe("a/b", 1)
    assert subscriber.drain() == [retained(b"by name", 1)]


@sn2("MQTT-SN-4.26-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_empty_retained_publish_is_forwarded_and_clears(sn: Sn, profile: str, qos: int) -> None:
    publisher, subscriber, later = sn(profile), sn(profile), sn(profile)
    publisher.publish("a/b", b"kept", 1, retain=True)
    subscriber.subscribe("a/b", 2, handling=2)
    publisher.publish("a/b", b"", qos, retain=True)
    publisher.ping()
    assert subscriber.drain() == [Message("a/b", b"", qos)]
    later.subscribe("a/b", 2)
    assert later.drain() == []


@sn2("MQTT-SN-4.26-3")
def test_an_empty_message_is_never_kept(sn: Sn, profile: str) -> None:
    publisher, later = sn(profile), sn(profile)
    publisher.publish("a/b", b"", 1, retain=True)
    publisher.publish("a/c", b"", 2, retain=True)
    later.subscribe("#", 2)
    assert later.drain() == []


@sn2("MQTT-SN-4.26-4")
def test_retain_0_touches_nothing(sn: Sn, profile: str) -> None:
    publisher, later = sn(profile), sn(profile)
    publisher.publish("a/b", b"kept", 1, retain=True)
    publisher.publish("a/b", b"plain", 1)
    publisher.publish("a/b", b"", 2)
    publisher.publish("a/c", b"plain", 1)
    later.subscribe("a/#", 1)
    assert later.drain() == [retained(b"kept", 1)]


@sn2("MQTT-SN-4.26-5")
def test_retain_handling_0_sends_at_every_subscribe(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    for topic_name in ("a/b", "a/c", "x"):
        publisher.publish(topic_name, topic_name.encode(), 1, retain=True)
    for _ in range(2):
        subscriber.subscribe("a/+", 1, handling=0)
        assert subscriber.drain() == [retained(b"a/b", 1, "a/b"), retained(b"a/c", 1, "a/c")]


@sn2("MQTT-SN-4.26-6")
def test_retain_handling_1_sends_for_a_new_subscription_only(sn: Sn, profile: str) -> None:
    publisher = sn(profile)
    publisher.publish("a/b", b"kept", 1, retain=True)
    subscriber = sn(profile, "returns", clean=True, expiry=600)
    subscriber.subscribe("a/+", 1, handling=1)
    assert subscriber.drain() == [retained(b"kept", 1)]
    subscriber.subscribe("a/+", 0, handling=1)
    assert subscriber.drain() == []
    # Another filter that matches the same topic is another subscription.
    subscriber.subscribe("a/b", 1, handling=1)
    assert subscriber.drain() == [retained(b"kept", 1)]
    subscriber.disconnect()
    assert subscriber.connect(clean=False, expiry=600).session_present
    subscriber.subscribe("a/+", 1, handling=1)
    assert subscriber.drain() == []
    subscriber.disconnect()
    assert not subscriber.connect(clean=True, expiry=600).session_present
    subscriber.subscribe("a/+", 1, handling=1)
    assert subscriber.drain() == [retained(b"kept", 1)]
    subscriber.unsubscribe("a/+")
    subscriber.subscribe("a/+", 1, handling=1)
    assert subscriber.drain() == [retained(b"kept", 1)]


@sn2("MQTT-SN-4.26-6")
def test_a_refused_subscribe_did_not_make_the_subscription(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    publisher.publish("a/b", b"kept", 1, retain=True)
    assert subscriber.subscribe("a/b#", 1, handling=1).reason == 0x8F
    subscriber.subscribe("a/b", 1, handling=1)
    assert subscriber.drain() == [retained(b"kept", 1)]


@sn2("MQTT-SN-4.26-7")
def test_retain_handling_2_sends_none_but_live_messages_come(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    publisher.publish("a/b", b"kept", 1, retain=True)
    subscriber.subscribe("a/b", 1, handling=2)
    assert subscriber.drain() == []
    publisher.publish("a/b", b"live", 1)
    assert subscriber.drain() == [Message("a/b", b"live", 1)]


@sn2("MQTT-SN-4.26-8")
def test_retain_as_published_0_forwards_with_retain_0(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    subscriber.subscribe("a/b", 2, as_published=False)
    publisher.publish("a/b", b"with", 1, retain=True)
    publisher.publish("a/b", b"without", 1)
    assert subscriber.drain() == [Message("a/b", b"with", 1), Message("a/b", b"without", 1)]


@sn2("MQTT-SN-4.26-9")
def test_retain_as_published_1_forwards_the_publishers_bit(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    subscriber.subscribe("a/b", 2, as_published=True)
    publisher.publish("a/b", b"with", 1, retain=True)
    publisher.publish("a/b", b"without", 1)
    publisher.publish("a/b", b"", 2, retain=True)
    assert subscriber.drain() == [retained(b"with", 1), Message("a/b", b"without", 1), retained(b"", 2)]


@pytest.mark.parametrize("as_published", [False, True])
def test_what_a_subscription_brings_has_retain_1_whatever_its_option(sn: Sn, profile: str, as_published: bool) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    publisher.publish("a/b", b"kept", 2, retain=True)
    subscriber.subscribe("a/b", 1, as_published=as_published)
    assert subscriber.drain() == [retained(b"kept", 1)]


def test_a_filter_that_starts_with_a_wildcard_passes_dollar_topics_over(sn: Sn, profile: str) -> None:
    publisher, subscriber = sn(profile), sn(profile)
    publisher.publish("$own/a", b"hidden", 1, retain=True)
    subscriber.subscribe("#", 1)
    assert subscriber.drain() == []
    subscriber.subscribe("$own/#", 1)
    assert subscriber.drain() == [retained(b"hidden", 1, "$own/a")]


def test_no_local_is_by_client_and_a_pubwos_has_none(sn: Sn, profile: str) -> None:
    client = sn(profile)
    client.subscribe("a/b", 1, no_local=True)
    client.publish("a/b", b"own", 1)
    assert client.drain() == []
    client.send_bytes(pubwos(profile, "a/b", b"sessionless"))
    assert client.drain() == [Message("a/b", b"sessionless")]


@sn2("MQTT-SN-4.26-1")
@pytest.mark.parametrize("reader", PROFILES)
def test_many_retained_messages_reach_a_client_one_acknowledgement_at_a_time(sn: Sn, profile: str, reader: str) -> None:
    publisher, subscriber = sn(profile), sn(reader)
    for number in range(40):
        publisher.publish(f"many/{number:02}", b"%d" % number, number % 3, retain=True)
    publisher.ping()
    subscriber.subscribe("many/#", 2)
    got = subscriber.drain()
    assert sorted(got) == [retained(b"%d" % n, n % 3, f"many/{n:02}") for n in range(40)]
    if reader == V12:
        assert sorted(subscriber.registered) == [f"many/{number:02}" for number in range(40)]
