"""Layouts, the flags of a layout, and 1.2's return codes."""

import pytest

from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import Bits, Step
from embermq.protocol.sn.wire.layouts import (
    CONGESTION,
    REASON_OF_RETURN_CODE,
    UNKNOWN_ALIAS,
    Layout,
    flags,
    return_code,
)
from embermq.protocol.sn.wire.profiles import V12


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
    layout = Layout(kinds.PUBACK, 0x0D, (flags(Bits(f.DUP, 7), strict=True), Step(f.U16, f.PACKET_ID)))
    assert layout.has(f.DUP)
    assert layout.has(f.PACKET_ID)
    assert not layout.has(f.REASON)


def test_the_bits_of_a_topic_type_are_the_inverse_of_the_types_of_the_bits() -> None:
    layout = Layout(kinds.SUBSCRIBE, 0x12, (), (f.FULL_NAME, f.PREDEFINED_ALIAS, f.SHORT_NAME, -1))
    assert layout.topic_bits == (-1, 1, 2, 0)


def test_a_profile_says_which_packet_it_has_not() -> None:
    assert V12.layout(kinds.PUBWOS).kind == kinds.PUBWOS
    with pytest.raises(ValueError, match=r"1\.2 has no packet"):
        V12.layout(kinds.WAKEUP)
