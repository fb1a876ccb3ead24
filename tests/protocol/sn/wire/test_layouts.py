"""Layouts, the flags of a layout, and 1.2's return codes."""

import pytest

from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire.layouts import (
    CONGESTION,
    REASON_OF_RETURN_CODE,
    U16,
    UNKNOWN_ALIAS,
    Bits,
    Layout,
    Profile,
    Step,
    flags,
    return_code,
)
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn


@pytest.mark.parametrize("code", range(4))
def test_a_return_code_survives_as_a_reason(code: int) -> None:
    assert return_code(REASON_OF_RETURN_CODE[code]) == code


@pytest.mark.parametrize(
    ("reason", "code"),
    [(0, 0), (2, 0), (CONGESTION, 1), (0x89, 1), (0x97, 1), (UNKNOWN_ALIAS, 2), (0x90, 2), (0x87, 3), (0x80, 3)],
)
def test_every_reason_has_a_return_code(reason: int, code: int) -> None:
    assert return_code(reason) == code


def test_bits_that_are_not_named_are_reserved_only_if_the_profile_is_strict() -> None:
    bits = (Bits(f.DUP, 7), Bits(f.QOS, 5, 2))
    assert flags(*bits, strict=True).reserved == 0b0001_1111
    assert flags(*bits, strict=False).reserved == 0


def test_a_layout_has_the_fields_of_its_steps_and_of_its_flags() -> None:
    layout = Layout(sn.PUBACK, 0x0D, (flags(Bits(f.DUP, 7), strict=True), Step(U16, f.PACKET_ID)))
    assert layout.has(f.DUP)
    assert layout.has(f.PACKET_ID)
    assert not layout.has(f.REASON)


def test_the_bits_of_a_topic_type_are_the_inverse_of_the_types_of_the_bits() -> None:
    bits = Bits(f.TOPIC_TYPE, 0, 2, (f.FULL_NAME, f.PREDEFINED_ALIAS, f.SHORT_NAME, -1))
    assert [bits.bits_of(value) for value in (f.PREDEFINED_ALIAS, f.SHORT_NAME, f.FULL_NAME)] == [1, 2, 0]
    with pytest.raises(ValueError, match="topic type"):
        bits.bits_of(f.SESSION_ALIAS)


def test_a_number_of_a_body_is_found_by_the_layout_without_reading_the_rest() -> None:
    connect = A.layout(sn.CONNECT)
    without_will = bytes.fromhex("01 0009 02 003c 00000000 0000")
    assert (connect.number(without_will, f.PACKET_ID), connect.number(without_will, f.VERSION)) == (9, 2)
    with_will = bytes.fromhex("03 17 0009 02 003c 00000000 0000")
    assert (connect.number(with_will, f.PACKET_ID), connect.number(with_will, f.VERSION)) == (9, 2)
    assert connect.number(with_will[:4], f.VERSION) == -1
    assert V12.layout(sn.CONNECT).number(bytes.fromhex("04 01 003c 64657631"), f.PACKET_ID) == -1


@pytest.mark.parametrize(("profile", "size"), [(V12, 4), (W, 10), (A, 12), (B, 8)], ids=str)
def test_a_layout_knows_how_many_bytes_every_packet_has(profile: Profile, size: int) -> None:
    assert profile.layout(sn.CONNECT).bytes_min == size


def test_a_profile_says_which_packet_it_has_not() -> None:
    assert V12.layout(sn.PUBWOS).kind == sn.PUBWOS
    with pytest.raises(ValueError, match=r"1\.2 has no WAKEUP"):
        V12.layout(sn.WAKEUP)
