"""Messages to a client: their names, their order, their rate, and what is too large."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.wire.codec import encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn
from support.acknowledgements import puback, pubrec
from support.sn_harness import (
    ALL,
    Harness,
    one,
    registered,
)


def test_1_2_is_told_an_alias_before_the_message() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    publish = one(registered(harness, connection, harness.deliver(connection, "a/b", b"1")))
    assert publish.kind == sn.PUBLISH
    assert (publish.payload, publish.reference.topic_alias > 0) == (b"1", True)
    # The next message of that topic needs no REGISTER.
    assert one(harness.deliver(connection, "a/b", b"2")).kind == sn.PUBLISH


def test_nothing_overtakes_a_message_that_waits_for_its_alias() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    register = harness.deliver(connection, "a/b", b"1")
    assert harness.deliver(connection, "ab", b"2") == []
    assert harness.deliver(connection, "c/d", b"3") == []
    sent = registered(harness, connection, register)
    assert [packet.kind for packet in sent] == [sn.PUBLISH, sn.PUBLISH, sn.REGISTER]
    last = registered(harness, connection, sent[2:])
    assert [packet.payload for packet in [*sent[:2], *last] if packet.kind == sn.PUBLISH] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("profile", [W, A, B], ids=lambda profile: profile.name)
def test_2_0_is_sent_the_full_name(profile: Profile) -> None:
    harness = Harness()
    publish = one(harness.deliver(harness.connect(profile), "a/b", b"1"))
    assert publish.kind == sn.PUBLISH
    assert publish.reference == sn.full_name("a/b")


@ALL
def test_a_topic_that_the_client_subscribed_to_by_name_has_an_alias(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    suback = one(harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"))))
    assert suback.kind == sn.SUBACK
    publish = one(harness.deliver(connection, "a/b", b"1"))
    assert publish.kind == sn.PUBLISH
    assert publish.reference == sn.session_alias(suback.topic_alias)


@pytest.mark.parametrize("profile", [V12, W, A], ids=lambda profile: profile.name)
def test_two_bytes_are_a_short_name(profile: Profile) -> None:
    harness = Harness()
    publish = one(harness.deliver(harness.connect(profile), "ab", b"1"))
    assert publish.kind == sn.PUBLISH
    assert publish.reference == sn.short_name("ab")


@ALL
def test_a_predefined_alias_is_used_once_the_client_has(profile: Profile) -> None:
    harness = Harness(predefined={7: "pre/defined"})
    connection = harness.connect(profile)
    harness.ask(connection, sn.subscribe(1, sn.predefined_alias(7)))
    publish = one(harness.deliver(connection, "pre/defined"))
    assert publish.kind == sn.PUBLISH
    assert publish.reference == sn.predefined_alias(7)


def test_a_topic_the_client_will_not_register_is_dropped_from_then_on() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    register = harness.deliver(connection, "a/b", b"1", 1, 11)
    assert registered(harness, connection, register, 0x83) == []
    assert harness.received() == [puback(11)]
    assert harness.deliver(connection, "a/b", b"2", 2, 12) == []
    assert harness.received()[1:] == [pubrec(12, 0x80)]
    assert harness.engine.counters.dropped_unregistered == 2
    # Asking for it brings it back.
    harness.ask(connection, sn.register(1, "a/b"))
    assert one(harness.deliver(connection, "a/b", b"3")).kind == sn.PUBLISH


def test_congestion_costs_one_message_only() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    registered(harness, connection, harness.deliver(connection, "a/b", b"1"), 0xF1)
    assert one(harness.deliver(connection, "a/b", b"2")).kind == sn.REGISTER


@pytest.mark.parametrize("profile", [V12, A, B], ids=lambda profile: profile.name)
def test_an_alias_that_the_client_forgot_is_registered_again_and_the_message_sent_again(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    harness.ask(connection, sn.subscribe(1, sn.full_name("a/b"), 1))
    publish = one(harness.deliver(connection, "a/b", b"1", 1, 11))
    assert publish.kind == sn.PUBLISH
    again = harness.ask(connection, sn.acknowledgement(sn.PUBACK, 11, 0xF0, publish.reference.topic_alias))
    if profile is V12:
        again = registered(harness, connection, again)
    second = one(again)
    assert second.kind == sn.PUBLISH
    assert (second.payload, second.packet_id) == (b"1", 11)
    assert puback(11) not in harness.received()
    harness.ask(connection, sn.acknowledgement(sn.PUBACK, 11, 0, second.reference.topic_alias))
    assert harness.received()[-1] == puback(11)


def test_a_client_that_forgets_every_alias_gets_each_message_once_more_only() -> None:
    harness = Harness()
    connection = harness.connect(V12)
    sent = registered(harness, connection, harness.deliver(connection, "a/b", b"1", 1, 11))
    for _ in range(2):
        publish = one(sent)
        assert publish.kind == sn.PUBLISH
        sent = harness.ask(connection, sn.acknowledgement(sn.PUBACK, 11, 0xF0, publish.reference.topic_alias))
        if sent:
            sent = registered(harness, connection, sent)
    assert sent == []
    assert harness.received() == [puback(11, 0xF0)]


def test_a_message_larger_than_the_clients_maximum_counts_as_delivered() -> None:
    for profile in (A, B):
        harness = Harness()
        connection = harness.connect(profile, packet_bytes_max=40)
        assert harness.deliver(connection, "a/b", bytes(60), 1, 3) == []
        assert harness.received() == [puback(3)]
        assert harness.engine.counters.dropped_too_large == 1
        long_name = "a/" + "b" * 22
        packets = harness.deliver(connection, long_name, bytes(15), 0)
        assert one(packets).kind == sn.REGISTER  # the name or the data, but not both in one packet
        publish = one(registered(harness, connection, packets))
        assert publish.kind == sn.PUBLISH


def test_a_message_larger_than_a_datagram_counts_as_delivered_behind_a_forwarder_too() -> None:
    harness = Harness(prove_address=False)
    connect = encode(sn.connect("dev1", packet_id=1), B)
    node = bytes(200)
    harness.feed(b"\x01" + (5 + len(node) + len(connect)).to_bytes(2, "big") + b"\xfc\xc8" + node + connect)
    connection = harness.connection()
    for packet_id, size in enumerate((65_280, 65_300, 65_500, 65_540), 1):
        connection.deliver(core.Delivery([core.Publish("a/b", bytes(size))], 1, packet_id=packet_id))
        harness.settle()
    assert max(len(data) for _, data in harness.sent) == 65_280 + 3 + 5 + 4 + 5 + 200
    assert harness.received() == [puback(2), puback(3), puback(4)]
    assert harness.engine.counters.dropped_too_large == 3


def test_qos_0_is_sent_in_bursts() -> None:
    harness = Harness(burst=10, burst_ms=20, prove_address=False, waiting_max=50)
    connection = harness.connect(A)
    taken = [connection.deliver(core.Delivery([core.Publish("ab", b"%d" % number)])) for number in range(70)]
    assert len(harness.settle()) == 10
    assert taken.count(True) == 60
    assert harness.engine.counters.dropped_waiting_full == 10
    assert not connection.has_room()
    assert len(harness.pass_ms(20)) == 10
    assert harness.writable() == 0
    rest = harness.pass_ms(200)
    assert len(rest) == 40
    assert harness.writable() == 1
    assert connection.has_room()


@ALL
def test_large_messages_at_qos_0_are_sent_in_smaller_bursts(profile: Profile) -> None:
    harness = Harness(prove_address=False, burst_ms=10)
    connection = harness.connect(profile)
    harness.ask(connection, sn.subscribe(1, sn.full_name("a/b")))
    for _ in range(20):
        harness.deliver(connection, "a/b", bytes(20_000))
    bursts = [sum(len(data) for _, data in harness.sent)]
    for _ in range(6):
        bursts.append(sum(map(len, harness.pass_ms(10))))
    assert max(bursts) <= 64 * 1024 + 21_000
    assert sum(bursts) > 20 * 20_000
