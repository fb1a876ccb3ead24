"""From a CONNECT to a connection: refusals, duplicates, dialogues about wills, sleeping clients that come back."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.sn.events import ConnectRequest
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    HOST,
    TWO,
    Harness,
    fall_asleep,
)


@TWO
def test_an_empty_client_id_is_assigned_and_told(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile, "")
    connack = decode(harness.sent[0][1], profile)
    assert connack.kind == sn.CONNACK
    assert connack.client_id == connection.client_id != ""
    assert harness.connects()[0].client_id == connection.client_id


def test_1_2_has_no_way_to_tell_an_client_id() -> None:
    harness = Harness()
    assert harness.feed(encode(sn.connect("", version=1), V12)) == [bytes.fromhex("03 05 03")]
    assert harness.connects() == []


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        ("0a 04 04 07 00 3c 64 65 76 31", "03 05 03"),
        ("12 05 01 00 01 03 00 3c 00 00 00 00 00 00 64 65 76 31", "0a 06 00 00 01 84 00 00 00 00"),
        ("0e 01 01 00 01 09 00 3c 00 00 64 65 76 31", "06 02 00 00 01 84"),
    ],
)
def test_an_unknown_version_is_refused_and_leaves_nothing(data: str, answer: str) -> None:
    harness = Harness()
    assert harness.feed(bytes.fromhex(data)) == [bytes.fromhex(answer)]
    assert harness.engine.counters.clients == 0
    assert harness.connects() == []


def test_a_pinned_profile_refuses_the_others() -> None:
    harness = Harness(profile="2.0-a")
    assert harness.feed(encode(sn.connect("dev1", version=1), V12)) == [bytes.fromhex("03 05 03")]
    harness.connect(A)
    assert harness.engine.counters.clients == 1


def test_1_2_asks_for_topic_and_message() -> None:
    assert Harness().will_dialogue(True, "w/t") == core.Will("w/t", b"bye", 1, True)


def test_an_empty_will_topic_ends_the_dialogue_without_a_will() -> None:
    assert Harness().will_dialogue(True, "") is None


def test_a_connect_that_comes_again_restarts_the_question() -> None:
    harness = Harness()
    connect = encode(sn.connect("dev1", version=1, will_flag=True), V12)
    assert harness.feed(connect) == harness.feed(connect) == [bytes.fromhex("02 06")]
    harness.feed(encode(sn.will_topic("w/t"), V12))
    assert harness.feed(connect) == [bytes.fromhex("02 08")]
    assert harness.engine.counters.repeats == 2


def test_a_will_message_before_its_topic_is_asked_for_again() -> None:
    harness = Harness()
    harness.feed(encode(sn.connect("dev1", version=1, will_flag=True), V12))
    assert harness.feed(encode(sn.will_message(b"bye"), V12)) == [bytes.fromhex("02 06")]


def test_dialogues_are_bounded_in_number_and_time() -> None:
    harness = Harness(handshakes_max=2, handshake_ms=1_000)
    connect = encode(sn.connect("dev1", version=1, will_flag=True), V12)
    for port in range(3):
        harness.feed(connect, ("192.0.2.1", port))
    assert harness.engine.counters.handshakes_dropped == 1
    harness.pass_ms(1_001)
    assert harness.engine.counters.handshakes_dropped == 3
    assert harness.feed(encode(sn.will_topic("w/t"), V12), ("192.0.2.1", 2)) == []


@ALL
def test_a_copy_of_the_connect_is_answered_again_and_changes_nothing(profile: Profile) -> None:
    harness = Harness()
    connect = encode(sn.connect("dev1", packet_id=1, version=profile.version), profile)
    first = harness.feed(connect)
    connection = harness.connection()
    harness.ask(connection, sn.subscribe(1, sn.full_name("a/b")))
    harness.now_ms += 1_000
    assert harness.feed(connect) == first
    assert len(harness.connects()) == 1


@ALL
def test_the_same_connect_later_is_a_new_one(profile: Profile) -> None:
    harness = Harness()
    connect = encode(sn.connect("dev1", packet_id=1, version=profile.version), profile)
    harness.feed(connect)
    harness.now_ms += 500
    harness.ask(harness.connection(), sn.pingreq(2))
    harness.now_ms += 5_000
    harness.feed(connect)
    assert len(harness.connects()) == 2


@ALL
def test_what_a_connect_can_have_kept_is_bounded(profile: Profile) -> None:
    harness = Harness()
    version = profile.version
    long_id = sn.connect("x" * 257, packet_id=5, version=version)
    refused = harness.feed(encode(long_id, profile))
    assert refused == [encode(sn.connack(0x85, 5), profile)]
    large = sn.connect("x" * 5_000, packet_id=5, version=version)
    if not profile.will_dialogue:
        will = sn.ConnectWill(sn.full_name("a/b"), bytes(5_000))
        large = sn.connect("dev1", packet_id=5, will=will)
    assert [decode(data, profile).reason for data in harness.feed(encode(large, profile))] == [
        0x83 if version == 1 else 0x95
    ]
    assert harness.engine.counters.clients == 0
    harness.connect(profile, "x" * 256)
    assert harness.engine.counters.clients == 1


@pytest.mark.parametrize("profile", [V12, W], ids=lambda profile: profile.name)
@pytest.mark.parametrize("topic_too", [True, False])
def test_parts_of_a_will_are_bounded_in_the_dialogue_and_as_updates(profile: Profile, topic_too: bool) -> None:
    harness = Harness()
    harness.feed(encode(sn.connect("dev1", will_flag=True, version=profile.version), profile))
    if not topic_too:
        harness.feed(encode(sn.will_topic("a/b"), profile))
    part = sn.will_topic("t" * 5_000) if topic_too else sn.will_message(bytes(5_000))
    connack = decode(harness.feed(encode(part, profile))[0], profile)
    assert connack.kind == sn.CONNACK
    assert connack.reason >= 0x80
    connection = harness.connect(profile)
    harness.ask(connection, sn.will_topic("will/t", update=True))
    for update in (sn.will_topic("t" * 5_000, update=True), sn.will_message(bytes(5_000), True)):
        answer = harness.ask(connection, update)
        assert [packet.reason >= 0x80 for packet in answer if packet.name().endswith("RESP")] == [True]
    will = connection.will
    assert will is not None
    assert (will.topic_name, will.payload) == ("will/t", b"")


@ALL
def test_a_second_client_from_one_address_waits_until_the_first_is_decided(profile: Profile) -> None:
    harness = Harness()
    engine = harness.engine
    first, second = (encode(sn.connect(name, packet_id=5, version=profile.version), profile) for name in ("one", "two"))
    opened = [event for event in engine.receive(first, HOST, harness.now_ms) if isinstance(event, ConnectRequest)]
    for _ in range(100):
        events = engine.receive(second, HOST, harness.now_ms)
        answers = [datagram for datagram, _ in engine.data_to_send()]
        assert answers == ([encode(sn.connack(0xF1, 5), B)] if profile is B else [])
        assert events == []
    assert engine.counters.connects_refused == 100
    opened[0].connection.send(core.Connack(False))
    engine.take_events()
    events = engine.receive(second, HOST, harness.now_ms)
    assert any(isinstance(event, ConnectRequest) for event in events)


@ALL
def test_a_connect_wakes_a_sleeper_without_ending_anything(profile: Profile) -> None:
    harness = Harness()
    expiry_s = 0 if profile in (A, B, W) else -1
    connection = harness.connect(profile, session_expiry_s=expiry_s)
    fall_asleep(harness, connection)
    harness.deliver(connection, "ab", b"kept")
    harness.now_ms += 5_000
    connect = sn.connect("dev1", False, packet_id=7, version=profile.version, session_expiry_s=expiry_s)
    packets = [decode(data, profile) for data in harness.feed(encode(connect, profile))]
    assert packets[0].kind == sn.CONNACK
    assert [packet.payload for packet in packets if packet.kind == sn.PUBLISH] == [b"kept"]
    assert sum(isinstance(event, ConnectRequest) for event in harness.events) == 1
    assert harness.lost() == []
    assert connection.has_room()


@ALL
def test_a_clean_connect_of_a_sleeper_ends_its_session_without_its_will(profile: Profile) -> None:
    harness = Harness()
    connection = harness.connect(profile)
    fall_asleep(harness, connection)
    harness.now_ms += 5_000
    harness.connect(profile, packet_id=9)
    last = harness.events[-1]
    assert isinstance(last, ConnectRequest)
    assert last.sleeper is connection
    assert harness.lost() == []
