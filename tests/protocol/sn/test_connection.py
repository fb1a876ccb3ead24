"""A virtual connection: early packets, will updates, sleeping and waking, ends."""

from embermq.protocol import packets as core
from embermq.protocol.sn.events import ConnectRequest
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import B
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    HOST,
    TWO,
    Harness,
    fall_asleep,
    one,
    ping_of,
    pingresp,
)


def test_1_2_updates_the_will_in_two_parts() -> None:
    harness = Harness()
    harness.will_dialogue(True, "w/t")
    connection = harness.connection()
    assert harness.ask(connection, sn.will_topic("w/u", 0, False, update=True)) == [sn.will_response(True)]
    assert harness.ask(connection, sn.will_message(b"moved", update=True)) == [sn.will_response(False)]
    assert harness.ask(connection, sn.will_topic("", update=True)) == [sn.will_response(True)]
    assert harness.wills() == [core.Will("w/u", b"bye"), core.Will("w/u", b"moved"), None]


@ALL
def test_packets_that_run_ahead_of_connack_wait_for_it(profile: Profile) -> None:
    harness = Harness()
    events = harness.engine.receive(encode(sn.connect("dev1", packet_id=1, version=profile.version), profile), HOST, 0)
    assert isinstance(events[0], ConnectRequest)
    for number in range(1, 30):
        assert harness.engine.receive(encode(sn.pingreq(number), profile), HOST, 1) == []
    connection = events[0].connection
    connection.send(core.Connack(False))
    connection.opened()
    answers = [decode(data, profile) for data in harness.settle()]
    assert answers[0].kind == sn.CONNACK
    assert len(answers) == 1 + 16


@ALL
def test_answers_to_nothing_are_counted_or_left_to_the_core(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    assert harness.ask(connection, sn.acknowledgement(sn.PUBACK, 99)) == []
    assert harness.ask(connection, sn.regack(99, 5)) == []
    assert harness.engine.counters.acks_unknown == 2
    assert harness.received() == []


@ALL
def test_a_sleeping_client_takes_nothing_and_its_qos_0_messages_are_buffered(profile: Profile) -> None:
    harness = Harness(sleeping_messages_max=2)
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    assert not connection.has_room()
    assert harness.deliver(connection, "ab", b"1") == []
    assert harness.deliver(connection, "ab", b"2") == []
    assert not connection.deliver(core.Delivery([core.Publish("ab", b"3")]))
    assert harness.engine.counters.dropped_sleeping_full == 1
    packets = harness.ask(connection, ping_of(connection))
    assert [packet.payload for packet in packets if packet.kind == sn.PUBLISH] == [b"1", b"2"]
    assert connection.has_room()
    assert harness.writable() == 1
    connection.flushed(0, harness.now_ms)
    assert [decode(data, profile) for data in harness.settle()] == [pingresp(profile, 0)]
    assert not connection.has_room()


@ALL
def test_an_awake_client_sleeps_again_when_all_is_acknowledged(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.ask(connection, ping_of(connection))
    harness.deliver(connection, "ab", b"1", 1, 11)
    connection.flushed(0, harness.now_ms)
    assert harness.settle() == []
    # The PINGREQ again does not begin a second flush.
    assert harness.ask(connection, ping_of(connection, 6)) == []
    harness.ask(connection, sn.acknowledgement(sn.PUBACK, 11))
    connection.flushed(3, harness.now_ms)
    assert harness.settle() == []  # the core still owes three
    connection.flushed(0, harness.now_ms)
    assert [decode(data, profile) for data in harness.settle()] == [pingresp(profile, 0, 6)]


@ALL
def test_an_awake_client_is_not_kept_waiting_for_ever(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.ask(connection, ping_of(connection))
    connection.flushed(1, harness.now_ms)
    assert [decode(data, profile) for data in harness.pass_ms(2_000)] == [pingresp(profile, 0)]


@ALL
def test_what_was_unacknowledged_before_the_sleep_is_sent_when_awake(profile: Profile) -> None:
    harness = Harness(retry_ms=1_000)
    connection = harness.connect(profile)
    harness.deliver(connection, "ab", b"1", 1, 11)
    fall_asleep(harness, connection)
    assert harness.pass_ms(30_000) == []
    packets = harness.ask(connection, ping_of(connection))
    publish = one(packets)
    assert publish.kind == sn.PUBLISH
    assert (publish.packet_id, publish.dup) == (11, profile is not B)


@TWO
def test_aliases_survive_a_sleep_only_if_asked(profile: Profile) -> None:
    for retain in (False, True):
        harness = Harness()
        connection = harness.connect(profile)
        regack = one(harness.ask(connection, sn.register(1, "a/b")))
        assert regack.kind == sn.REGACK
        fall_asleep(harness, connection, retain_aliases=retain)
        assert (connection.outgoing.aliases.name_of(regack.topic_alias) == "a/b") == retain


def test_b_may_change_the_expiry_at_disconnect_but_not_from_nothing() -> None:
    harness = Harness()
    connection = harness.connect(B, session_expiry_s=100)
    assert harness.ask(connection, sn.disconnect(session_expiry_s=5)) == []
    assert harness.received() == [core.Disconnect(0, 5)]
    connection = harness.connect(B, packet_id=2)
    assert harness.ask(connection, sn.disconnect(session_expiry_s=5)) == [sn.disconnect(0x82)]
    assert harness.failed() == [0x82]
