"""Packets that need no session, and answers to senders without a connection."""

import pytest

from embermq.protocol import packets as core
from support.sn_harness import (
    Harness,
)


@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        ({}, "09 0c 61 00 01 00 00 68 69", core.Publish("pre/defined", b"hi")),
        ({}, "09 0c 72 61 62 00 00 68 69", core.Publish("ab", b"hi", retain=True)),
        ({}, "0c 0c 60 00 03 00 00 61 2f 62 68 69", core.Publish("a/b", b"hi")),
        ({}, "0a 11 13 00 03 61 2f 62 68 69", core.Publish("a/b", b"hi", retain=True)),
        ({"sessionless_profile": "2.0-b"}, "09 12 03 00 03 61 2f 62 78", core.Publish("a/b", b"x")),
        ({"profile": "2.0-b"}, "07 12 11 00 01 68 69", core.Publish("pre/defined", b"hi", retain=True)),
        ({"profile": "2.0-w"}, "0b 11 02 73 00 03 61 2f 62 68 69", core.Publish("a/b", b"hi", retain=True)),
    ],
)
def test_messages_without_a_session_are_taken_at_qos_0_and_never_answered(
    options: dict[str, object],
    data: str,
    expected: core.Publish,
) -> None:
    harness = Harness(predefined={1: "pre/defined"}, **options)
    assert harness.feed(bytes.fromhex(data)) == []
    assert harness.sessionless() == [expected]


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"sessionless": False}, "0a 11 13 00 03 61 2f 62 68 69"),
        ({}, "07 11 11 00 09 68 69"),  # a predefined alias that is not defined
        ({}, "09 12 03 00 03 61 2f 62 78"),  # B's, but 2.0-a is set: it may be a SUBSCRIBE
        ({"profile": "2.0-b"}, "09 0c 61 00 01 00 00 68 69"),
        ({}, "09 0c 20 00 05 00 07 68 69"),  # QoS 1 needs a session
        ({}, "07 11 00 00 05 68 69"),  # a session alias
    ],
)
def test_other_messages_without_a_session_are_not_taken(options: dict[str, object], data: str) -> None:
    harness = Harness(predefined={1: "pre/defined"}, **options)
    assert harness.feed(bytes.fromhex(data)) == []
    assert harness.sessionless() == []


def test_a_search_is_answered_only_if_set() -> None:
    for data, answer in (("03 01 01", "03 02 09"), ("03 02 01", "03 03 09"), ("02 17", "03 18 09")):
        assert Harness().feed(bytes.fromhex(data)) == []
        assert Harness(answer_search=True, gateway_id=9).feed(bytes.fromhex(data)) == [bytes.fromhex(answer)]


@pytest.mark.parametrize("profile", ["1.2", "2.0-w"])
def test_a_search_that_two_profiles_write_alike_is_answered_once_and_by_either_alone(profile: str) -> None:
    for name in (profile, "auto"):
        harness = Harness(answer_search=True, gateway_id=9, profile=name)
        assert harness.feed(bytes.fromhex("03 01 01")) == [bytes.fromhex("03 02 09")]


def test_a_ping_without_a_connection_is_answered_and_not_too_often() -> None:
    harness = Harness()
    assert harness.feed(bytes.fromhex("02 16")) == [bytes.fromhex("02 18")]
    assert harness.feed(bytes.fromhex("04 0c 12 34")) == [bytes.fromhex("06 0e 05 12 34 f4")]
    answers = sum(len(harness.feed(bytes.fromhex("02 16"), ("192.0.2.7", port))) for port in range(300))
    assert answers == 98
    harness.now_ms += 1_000
    assert len(harness.feed(bytes.fromhex("02 16"))) == 1
