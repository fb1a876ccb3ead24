"""REGISTER, PUBLISH, SUBSCRIBE, UNSUBSCRIBE of a client, and their answers in each profile."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.wire.codec import encode
from embermq.protocol.sn.wire.fields import PREDEFINED_ALIAS
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    HOST,
    TWO,
    Harness,
)


@ALL
def test_register_gives_the_same_alias_for_the_same_name(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    (first,) = harness.ask(connection, sn.register(1, "a/b"))
    (again,) = harness.ask(connection, sn.register(2, "a/b"))
    (other,) = harness.ask(connection, sn.register(3, "a/c"))
    assert first.kind == sn.REGACK and again.kind == sn.REGACK and other.kind == sn.REGACK
    assert first.reason == 0
    assert first.topic_alias == again.topic_alias != other.topic_alias
    assert 0 < first.topic_alias < 0xFFFF
    harness.ask(connection, sn.publish(sn.session_alias(first.topic_alias), b"hi", 1, packet_id=4))
    assert harness.received() == [core.Publish("a/b", b"hi", 1, packet_id=4)]


@ALL
def test_a_name_with_wildcards_is_not_registered(profile: Profile) -> None:
    harness = Harness()
    (answer,) = harness.ask(harness.connect(profile), sn.register(1, "a/+"))
    assert answer.kind == sn.REGACK
    assert (answer.topic_alias, answer.reason >= 0x80) == (0, True)


def test_a_predefined_name_is_answered_with_its_alias() -> None:
    for profile, reason in ((A, 0), (B, 0x1A)):
        harness = Harness(predefined={7: "a/b"})
        answer = harness.ask(harness.connect(profile), sn.register(1, "a/b"))
        assert answer == [sn.regack(1, 7, reason, PREDEFINED_ALIAS)]


@pytest.mark.parametrize(
    ("profile", "qos", "answer"),
    [
        (V12, 0, [sn.acknowledgement(sn.PUBACK, 0, 0xF0, 0x1234)]),
        (V12, 1, [sn.acknowledgement(sn.PUBACK, 5, 0xF0, 0x1234)]),
        (V12, 2, [sn.acknowledgement(sn.PUBACK, 5, 0xF0, 0x1234)]),
        (A, 0, []),
        (A, 1, [sn.acknowledgement(sn.PUBACK, 5, 0xF0)]),
        (A, 2, [sn.acknowledgement(sn.PUBREC, 5, 0xF0)]),
        (B, 0, []),
        (B, 1, [sn.acknowledgement(sn.PUBACK, 5, 0xF0)]),
        (B, 2, [sn.acknowledgement(sn.PUBREC, 5, 0xF0)]),
    ],
)
def test_an_unknown_alias_is_answered_as_each_profile_says(
    profile: Profile,
    qos: int,
    answer: list[sn.SnPacket],
) -> None:
    harness = Harness()
    packet = sn.publish(sn.session_alias(0x1234), b"hi", qos, packet_id=5 if qos else 0)
    assert harness.ask(harness.connect(profile), packet) == answer
    assert harness.received() == []
    assert harness.engine.counters.unknown_aliases == 1


def test_an_unknown_predefined_alias_ends_a_connection_of_b_only() -> None:
    for profile, failed in ((V12, []), (A, []), (B, [0x82])):
        harness = Harness()
        harness.ask(harness.connect(profile), sn.publish(sn.predefined_alias(5), b"hi", 1, packet_id=3))
        assert harness.failed() == failed


@TWO
def test_a_second_request_before_the_first_is_answered_ends_the_connection(profile: Profile) -> None:
    harness = Harness()
    harness.connect(profile)
    first = encode(sn.publish(sn.full_name("a"), b"1", 1, packet_id=1), profile)
    harness.engine.receive(first, HOST, harness.now_ms)  # the core does not answer it
    harness.feed(first)  # the same again is no second one
    assert harness.failed() == []
    harness.engine.receive(encode(sn.publish(sn.full_name("a"), b"2", 1, packet_id=2), profile), HOST, harness.now_ms)
    harness.feed(encode(sn.publish(sn.full_name("a"), b"3", 1, packet_id=3), profile))
    assert harness.failed() == [0x93]
    assert harness.engine.counters.clients == 0


def test_1_2_sets_no_penalty_on_a_second_request() -> None:
    harness = Harness()
    harness.connect(V12)
    for packet_id in (1, 2, 3):
        data = encode(sn.publish(sn.short_name("ab"), b"x", 1, packet_id=packet_id), V12)
        harness.engine.receive(data, HOST, harness.now_ms)
    assert harness.failed() == []


@ALL
def test_a_subscribe_that_comes_again_is_only_answered_again(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    first = harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 1))
    harness.now_ms += 3_000
    again = harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 1, dup=profile is V12))
    assert first == again
    assert len(harness.received()) == 1
    harness.ask(connection, sn.subscribe(2, sn.full_name("a/b"), 1))
    assert len(harness.received()) == 2


def test_1_2_may_use_one_packet_id_for_ever() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    for _ in range(3):
        harness.ask(connection, sn.subscribe(1, sn.full_name("a/b")))
    assert len(harness.received()) == 3


@ALL
def test_a_late_copy_of_a_finished_qos_2_message_is_not_handed_on(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    reference = sn.short_name("ab") if profile.short_names else sn.full_name("ab")
    publish = sn.publish(reference, b"once", 2, packet_id=9)
    harness.ask(connection, publish)
    harness.ask(connection, sn.acknowledgement(sn.PUBREL, 9))
    harness.now_ms += 500
    assert harness.ask(connection, publish) == [sn.acknowledgement(sn.PUBREC, 9)]
    assert harness.ask(connection, sn.publish(reference, b"once", 2, dup=True, packet_id=9)) == [
        sn.acknowledgement(sn.PUBREC, 9)
    ]
    assert [type(packet) for packet in harness.received()] == [core.Publish, core.Acknowledgement]
    harness.ask(connection, sn.publish(reference, b"another", 2, packet_id=9))
    assert len(harness.received()) == 3


def test_suback_tells_the_alias_of_an_exact_topic_only() -> None:
    harness = Harness(predefined={7: "pre/defined"})
    for number, profile in enumerate((V12, A, B)):
        connection = harness.connect(profile, f"dev{number}", ("192.0.2.1", number))
        (exact,) = harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 1))
        (wildcard,) = harness.ask(connection, sn.subscribe(2, sn.full_name("a/+"), 2))
        (named,) = harness.ask(connection, sn.subscribe(3, sn.predefined_alias(7), 0))
        assert exact.kind == sn.SUBACK and wildcard.kind == sn.SUBACK and named.kind == sn.SUBACK
        assert (exact.reason, wildcard.reason, named.reason) == (1, 2, 0)
        assert (exact.topic_alias > 0, wildcard.topic_alias) == (True, 0)
        assert named.topic_alias == (0 if profile is B else 7)


@ALL
def test_a_bad_filter_is_refused_without_asking_the_core(profile: Profile) -> None:
    harness = Harness()
    (answer,) = harness.ask(harness.connect(profile), sn.subscribe(1, sn.full_name("a/#/b")))
    assert answer.kind == sn.SUBACK
    assert answer.reason >= 0x80
    assert harness.received() == []


def test_subscribe_options_reach_the_core() -> None:
    for profile in (W, A, B):
        harness = Harness()
        harness.ask(harness.connect(profile), sn.subscribe(1, sn.full_name("a"), 2, True, True, 1))
        assert harness.received() == [core.Subscribe(1, [core.SubscriptionRequest("a", 2, True, True, 1)])]
