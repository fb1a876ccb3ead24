"""What is unacknowledged is sent again, a bounded number of times."""

from random import Random

import pytest

from embermq.protocol.sn.outgoing import Retransmission
from embermq.protocol.sn.wire.codec import decode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn
from support.acknowledgements import puback, pubcomp
from support.sn_harness import (
    ALL,
    Harness,
    one,
)


@pytest.mark.parametrize(("profile", "dup"), [(V12, True), (W, True), (A, True), (B, False)])
def test_qos_1_is_sent_again_until_acknowledged(profile: Profile, dup: bool) -> None:
    harness = Harness(retry_ms=1_000, retries_max=3)
    connection = harness.connect(profile, keep_alive_s=600)
    harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 1))
    first = one(harness.deliver(connection, "a/b", b"1", 1, 11))
    assert first.kind == sn.PUBLISH
    assert not first.dup
    again = [decode(data, profile) for data in harness.pass_ms(1_500)]
    assert again == [sn.publish(first.reference, b"1", 1, dup=dup, packet_id=11)]
    harness.ask(connection, sn.acknowledgement(sn.PUBACK, 11, 0, first.reference.topic_alias))
    assert harness.received()[-1] == puback(11)
    assert harness.pass_ms(60_000) == []


@ALL
def test_after_the_last_try_the_client_is_lost(profile: Profile) -> None:
    harness = Harness(retry_ms=1_000, retries_max=3)
    connection = harness.connect(profile, keep_alive_s=6_000)
    harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 1))
    harness.deliver(connection, "a/b", b"1", 1, 11)
    sent = [decode(data, profile) for data in harness.pass_ms(300_000)]
    assert sum(packet.kind == sn.PUBLISH for packet in sent) == 3
    assert harness.lost() == ["no acknowledgement after the last retry"]
    assert harness.engine.counters.retransmissions == 3
    assert harness.engine.counters.clients == 0


def test_2_0_waits_longer_each_time_and_1_2_does_not() -> None:
    gaps = {}
    for profile in (V12, A):
        harness = Harness(retry_ms=1_000, retries_max=4)
        connection = harness.connect(profile, keep_alive_s=6_000)
        harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 1))
        harness.deliver(connection, "a/b", b"1", 1, 11)
        at: list[int] = []
        start_ms = harness.now_ms
        for _ in range(20_000):
            if harness.pass_ms(1):
                at.append(harness.now_ms - start_ms)
        gaps[profile.name] = at[:4]
    assert gaps["1.2"] == [1_000, 2_000, 3_000, 4_000]
    first, second, third, fourth = gaps["2.0-a"]
    assert first == 1_000
    assert second - first < third - second < fourth - third


@ALL
def test_qos_2_repeats_publish_until_pubrec_and_pubrel_until_pubcomp(profile: Profile) -> None:
    harness = Harness(retry_ms=1_000)
    connection = harness.connect(profile, keep_alive_s=600)
    harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 2))
    harness.deliver(connection, "a/b", b"1", 2, 11)
    again = decode(harness.pass_ms(1_100)[0], profile)
    assert again.kind == sn.PUBLISH
    assert again.dup
    assert harness.ask(connection, sn.acknowledgement(sn.PUBREC, 11)) == [sn.acknowledgement(sn.PUBREL, 11)]
    assert [decode(data, profile) for data in harness.pass_ms(1_100)] == [sn.acknowledgement(sn.PUBREL, 11)]
    # A PUBREC again gets a PUBREL again.
    assert harness.ask(connection, sn.acknowledgement(sn.PUBREC, 11)) == [sn.acknowledgement(sn.PUBREL, 11)]
    harness.ask(connection, sn.acknowledgement(sn.PUBCOMP, 11))
    assert harness.received()[-1] == pubcomp(11)
    assert harness.pass_ms(60_000) == []


def test_a_register_is_repeated_like_a_message() -> None:
    harness = Harness(retry_ms=1_000, retries_max=2)
    connection = harness.connect(V12, keep_alive_s=600)
    register = one(harness.deliver(connection, "a/b", b"1"))
    assert [decode(data, V12) for data in harness.pass_ms(1_000)] == [register]
    harness.pass_ms(5_000)
    assert harness.lost() == ["no acknowledgement after the last retry"]


def retransmission(backoff: bool = False, tries_max: int = 2) -> Retransmission:
    return Retransmission(1_000, tries_max, 60_000, backoff, Random(1))


def test_a_packet_is_due_until_its_own_kind_and_id_are_acknowledged() -> None:
    unacknowledged = retransmission()
    packet = sn.acknowledgement(sn.PUBREL, 7)
    unacknowledged.sent(sn.PUBREL, 7, packet, 0)
    assert unacknowledged.next_ms() == 1_000
    assert unacknowledged.due(999) == []
    assert unacknowledged.acknowledged(sn.PUBLISH, 7) is None
    assert unacknowledged.due(1_000) == [packet]
    assert unacknowledged.acknowledged(sn.PUBREL, 7) is packet
    assert (len(unacknowledged), unacknowledged.next_ms()) == (0, 0)


def test_a_client_that_wakes_has_all_tries_again() -> None:
    unacknowledged = retransmission(tries_max=1)
    unacknowledged.sent(sn.PUBREL, 7, sn.acknowledgement(sn.PUBREL, 7), 0)
    assert unacknowledged.due(1_000) == [sn.acknowledgement(sn.PUBREL, 7)]
    assert unacknowledged.resume(1_500) == [sn.acknowledgement(sn.PUBREL, 7)]
    assert unacknowledged.due(2_500) == [sn.acknowledgement(sn.PUBREL, 7)]
    assert unacknowledged.due(3_500) is None


def test_the_pause_grows_to_its_bound() -> None:
    unacknowledged = retransmission(backoff=True, tries_max=100)
    unacknowledged.sent(sn.PUBREL, 7, sn.acknowledgement(sn.PUBREL, 7), 0)
    pauses = []
    for _ in range(40):
        now_ms = unacknowledged.next_ms()
        unacknowledged.due(now_ms)
        pauses.append(unacknowledged.next_ms() - now_ms)
    assert pauses[:6] == sorted(pauses[:6])
    assert max(pauses) == pauses[-1] == 61_000
