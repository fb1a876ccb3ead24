"""Messages: when they expire, and what is left of their interval."""

import pytest

from embermq.protocol.message_expiry import message_expires_us, with_remaining_expiry

INTERVAL = b"\x02\x00\x00\x00\x0a"
REST = b"\x26\x00\x01k\x00\x01v"


@pytest.mark.parametrize(
    ("properties", "expires_us"),
    [
        (b"", 0),
        (REST, 0),
        (INTERVAL, 13_000_000),
        (INTERVAL + REST, 13_000_000),
        (b"\x02\x00\x00\x00\x00", 3_000_000),
        (b"\x02\xff\xff\xff\xff", 3_000_000 + 0xFFFF_FFFF * 1_000_000),
        (INTERVAL[:4], 0),
    ],
)
def test_a_message_expires_when_its_interval_has_passed_since_it_was_received(
    properties: bytes, expires_us: int
) -> None:
    assert message_expires_us(properties, 3_000_000) == expires_us


@pytest.mark.parametrize(
    ("waited_us", "interval_s"),
    [(-1, 10), (0, 10), (1, 10), (999_999, 10), (1_000_000, 9), (9_999_999, 1), (10_000_000, 0), (99_000_000, 0)],
)
def test_the_time_that_a_message_has_waited_is_taken_from_its_interval(waited_us: int, interval_s: int) -> None:
    expires_us = message_expires_us(INTERVAL, 3_000_000)
    remaining = with_remaining_expiry(INTERVAL + REST, expires_us, 3_000_000 + waited_us)
    assert remaining == b"\x02" + interval_s.to_bytes(4, "big") + REST


@pytest.mark.parametrize("properties", [b"", REST])
def test_a_message_without_an_interval_gets_none(properties: bytes) -> None:
    assert with_remaining_expiry(properties, 99, 1) == properties


def test_an_interval_whose_end_is_not_known_stays() -> None:
    assert with_remaining_expiry(INTERVAL, 0, 1) == INTERVAL
