"""What an unproven address may be sent, and what proves it."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, W
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    HOST,
    Harness,
    one,
)


@ALL
def test_an_unproven_address_is_sent_little_more_than_it_sent(profile: Profile) -> None:
    """A forged address must not be flooded with what another host asked for."""
    harness = Harness(retry_ms=1_000, retries_max=3)
    victim = harness.connect(profile, keep_alive_s=600)
    harness.ask(victim, sn.subscribe(1, sn.full_name("a/b")))
    for _ in range(500):
        victim.deliver(core.Delivery([core.Publish("a/b", bytes(100))]))
    harness.settle()
    harness.pass_ms(600_000)
    received = harness.engine.counters.bytes_received
    sent = sum(len(data) for _, data in harness.sent)
    assert sent <= 3 * received + 128 + 4 * 40
    assert harness.lost() == ["no acknowledgement after the last retry"]


@ALL
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(("topic_name", "size"), [("a/b", 100), ("a/b", 10_000), ("t" * 10_000, 1), ("t" * 70, 1)])
def test_what_is_sent_again_counts_for_an_unproven_address_and_so_does_a_long_name(
    profile: Profile,
    qos: int,
    topic_name: str,
    size: int,
) -> None:
    harness = Harness(retry_ms=1_000, retries_max=4)
    victim = harness.connect(profile, keep_alive_s=600)
    harness.ask(victim, sn.subscribe(1, sn.full_name("#"), qos))
    harness.deliver(victim, topic_name, bytes(size), qos, 1)
    harness.pass_ms(600_000)
    received = harness.engine.counters.bytes_received
    sent = sum(len(data) for _, data in harness.sent)
    assert sent <= 3 * received + 128 + 5 * 64
    assert harness.lost() == ["no acknowledgement after the last retry"]


@ALL
@pytest.mark.parametrize(("topic_name", "size"), [("a/b", 10_000), ("t" * 10_000, 1)])
def test_what_was_withheld_is_sent_as_soon_as_the_address_is_proven(
    profile: Profile,
    topic_name: str,
    size: int,
) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    packets = harness.deliver(connection, topic_name, bytes(size), 1, 1)
    for _ in range(3):
        register = one(packets)
        if register.kind == sn.PUBLISH:
            break
        assert register.kind == sn.REGISTER
        packets = harness.ask(connection, sn.regack(register.packet_id, register.topic_alias))
    publish = one(packets)
    assert publish.kind == sn.PUBLISH
    assert len(publish.payload) == size


@pytest.mark.parametrize("profile", [W, A], ids=lambda profile: profile.name)
def test_a_client_that_wakes_elsewhere_is_sent_what_is_unacknowledged_once_its_address_is_proven(
    profile: Profile,
) -> None:
    harness = Harness()
    sleeper = harness.connect(profile)
    register = one(harness.deliver(sleeper, "a/b", bytes(5_000), 1, 1))
    assert register.kind == sn.REGISTER
    assert one(harness.ask(sleeper, sn.regack(register.packet_id, register.topic_alias))).kind == sn.PUBLISH
    harness.ask(sleeper, sn.disconnect(session_expiry_s=60, retain_aliases=True))
    ping = encode(sn.pingreq(7, "dev1"), profile)
    again = [decode(data, profile) for data in harness.feed(ping, (HOST[0], 4_444))]
    register = one(again)
    assert register.kind == sn.REGISTER
    publish = one(harness.ask(sleeper, sn.regack(register.packet_id, register.topic_alias)))
    assert publish.kind == sn.PUBLISH
    assert (len(publish.payload), publish.packet_id) == (5_000, 1)


@ALL
def test_an_address_that_answers_a_register_is_proven(profile: Profile) -> None:
    harness = Harness(burst=1_000)
    connection = harness.connect(profile)
    harness.ask(connection, sn.subscribe(1, sn.full_name("a/b")))
    packets: list[sn.SnPacket] = []
    for number in range(40):
        packets += harness.deliver(connection, "a/b", b"%099d" % number)
    register = packets[-1]
    assert register.kind == sn.REGISTER
    assert register.topic_name == "a/b"
    # A guess does not prove anything.
    assert harness.ask(connection, sn.regack(register.packet_id ^ 1, register.topic_alias)) == []
    packets[-1:] = harness.ask(connection, sn.regack(register.packet_id, register.topic_alias))
    assert [packet.payload for packet in packets if packet.kind == sn.PUBLISH] == [b"%099d" % n for n in range(40)]


def test_a_client_that_uses_an_alias_it_was_given_is_proven() -> None:
    harness = Harness(burst=1_000)
    connection = harness.connect(V12)
    regack = one(harness.ask(connection, sn.register(1, "a/b")))
    assert regack.kind == sn.REGACK
    harness.ask(connection, sn.publish(sn.session_alias(regack.topic_alias), b"x"))
    for number in range(40):
        assert one(harness.deliver(connection, "a/b", b"%099d" % number)).kind == sn.PUBLISH


def test_an_alias_that_was_not_given_out_proves_nothing() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    harness.ask(connection, sn.publish(sn.session_alias(77), b"x"))
    assert not connection.peer.is_proven
