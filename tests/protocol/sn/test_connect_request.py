"""An MQTT-SN CONNECT as the core's: credentials, expiry, wills."""

import pytest

from embermq.protocol import packets as core
from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.handshake import Attempt, StoredWills, credentials_of
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.profiles import V12, A, B
from support import sn_packets as sn
from support.sn_harness import (
    ALL,
    ELSEWHERE,
    Harness,
)


@ALL
def test_a_connect_becomes_the_cores(profile: Profile) -> None:
    harness = Harness()
    harness.connect(profile, keep_alive_s=30)
    connect = harness.connects()[0]
    assert (connect.client_id, connect.clean_start, connect.keep_alive_s) == ("dev1", True, 30)
    assert (connect.receive_maximum, connect.protocol_level) == (1, profile.protocol_level)
    assert len(harness.sent) == 1


def test_sessions_of_1_2_that_are_not_clean_never_expire() -> None:
    harness = Harness()
    harness.connect(V12, clean_start=False)
    assert harness.connects()[0].session_expiry_s == core.SESSION_NEVER_EXPIRES


def test_an_unknown_authentication_method_is_refused() -> None:
    harness = Harness()
    answer = harness.feed(encode(sn.connect("dev1", packet_id=3, auth_method="KERBEROS"), B))
    assert answer == [encode(sn.connack(0x8C, 3), B)]


def test_basic_authentication_carries_user_and_password() -> None:
    harness = Harness()
    harness.connect(B, auth_method="MQTT-BASIC", auth_data=b"\0\3ada\0\2pw")
    assert (harness.connects()[0].user_name, harness.connects()[0].password) == ("ada", b"pw")
    assert harness.feed(encode(sn.connect("x", auth_method="MQTT-BASIC", auth_data=b"\0\3ad"), B), ELSEWHERE) == [
        encode(sn.connack(0x81), B)
    ]


def test_the_will_of_2_0_is_in_the_connect() -> None:
    for profile in (A, B):
        harness = Harness(predefined={9: "pre/defined"})
        harness.connect(profile, will=sn.ConnectWill(sn.full_name("w/t"), b"bye", 1, True))
        assert harness.connects()[0].will == core.Will("w/t", b"bye", 1, True)
        harness.connect(profile, "dev2", ELSEWHERE, will=sn.ConnectWill(sn.predefined_alias(9), b"bye"))
        assert harness.connects()[1].will == core.Will("pre/defined", b"bye")
        answer = harness.feed(encode(sn.connect("x", will=sn.ConnectWill(sn.predefined_alias(8), b"")), profile))
        assert decode(answer[0], profile).kind == sn.CONNACK
        assert len(harness.connects()) == 2


def test_1_2_keeps_the_will_of_a_session_that_is_not_clean() -> None:
    harness = Harness()
    harness.will_dialogue(False, "w/t")
    harness.feed(encode(sn.disconnect(), V12))
    harness.connect(V12, clean_start=False)
    assert harness.connects()[-1].will == core.Will("w/t", b"bye", 1, True)
    harness.feed(encode(sn.disconnect(), V12))
    harness.connect(V12, clean_start=True)
    assert harness.connects()[-1].will is None
    harness.feed(encode(sn.disconnect(), V12))
    harness.connect(V12, clean_start=False)
    assert harness.connects()[-1].will is None


@pytest.mark.parametrize("data", [b"", b"\0\3ad", b"\0\3ada", b"\0\3ada\0\2p", b"\0\3ada\0\2pwx", b"\0\1\xff\0\0"])
def test_credentials_that_are_cut_or_too_long_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedPacket):
        credentials_of(sn.connect("dev1", auth_method="MQTT-BASIC", auth_data=data))


def test_without_a_method_there_are_no_credentials_and_an_unknown_one_is_told_apart() -> None:
    none = credentials_of(sn.connect("dev1"))
    assert none is not None
    assert none == (None, None)
    assert credentials_of(sn.connect("dev1", auth_method="KERBEROS")) is None


def test_stored_wills_are_bounded_and_the_oldest_is_dropped() -> None:
    wills = StoredWills(2)
    connect = sn.connect("", clean_start=False)
    for client_id in ("a", "b", "c"):
        wills.store(client_id, core.Will("w/t", client_id.encode()))
    assert wills.connect(connect, "a", None) is None
    assert wills.connect(connect, "c", None) == core.Will("w/t", b"c")


def test_a_dialogue_asks_for_the_topic_until_it_has_one_and_then_for_the_message() -> None:
    attempt = Attempt(sn.connect("dev1", version=1, will_flag=True), V12, b"", (("10.0.0.1", 1), b""))
    assert not attempt.take(sn.will_message(b"bye"))
    assert attempt.question() == sn.will_request(for_topic=True)
    assert not attempt.take(sn.will_topic("w/t", 1))
    assert attempt.question() == sn.will_request(for_topic=False)
    assert attempt.take(sn.will_message(b"bye"))
    assert attempt.will == core.Will("w/t", b"bye", 1)
