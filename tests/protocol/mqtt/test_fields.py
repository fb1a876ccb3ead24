"""The fields of packets: numbers and strings both ways, and that no read leaves the body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.mqtt.fields import (
    VARIABLE_BYTE_INTEGER_MAX,
    Fields,
    binary_field,
    text_field,
    variable_byte_integer,
)
from support.packet_strategies import texts


def fields(wire: str, stop: int | None = None) -> Fields:
    data = bytes.fromhex(wire)
    return Fields(data, 0, len(data) if stop is None else stop)


@pytest.mark.parametrize(
    ("length", "wire"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (VARIABLE_BYTE_INTEGER_MAX, "ffffff7f"),
    ],
)
def test_a_variable_byte_integer_takes_one_to_four_bytes(length: int, wire: str) -> None:
    assert variable_byte_integer(length) == bytes.fromhex(wire)
    assert fields(wire).variable_byte_integer() == length


def test_a_larger_number_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="268435456"):
        variable_byte_integer(VARIABLE_BYTE_INTEGER_MAX + 1)


@given(st.integers(0, VARIABLE_BYTE_INTEGER_MAX))
def test_every_variable_byte_integer_is_read_as_written(value: int) -> None:
    wire = variable_byte_integer(value)
    assert Fields(wire, 0, len(wire)).variable_byte_integer() == value


@pytest.mark.parametrize("wire", ["8000", "ff00", "80808000"])
def test_a_variable_byte_integer_has_no_more_bytes_than_it_needs(wire: str) -> None:
    with pytest.raises(MalformedPacket, match="more bytes than it needs"):
        fields(wire).variable_byte_integer()


@given(texts, st.binary(max_size=300))
def test_strings_and_binary_data_are_read_as_written(text: str, data: bytes) -> None:
    wire = text_field(text) + binary_field(data)
    both = Fields(wire, 0, len(wire))
    assert (both.text(), both.binary()) == (text, data)
    both.end()


def test_integers_have_the_big_end_first() -> None:
    numbers = fields("01 0203 04050607")
    assert (numbers.byte(), numbers.integer(), numbers.four_byte_integer()) == (0x01, 0x0203, 0x0405_0607)


@pytest.mark.parametrize("read", ["byte", "integer", "four_byte_integer", "variable_byte_integer", "binary", "text"])
def test_no_read_leaves_the_body(read: str) -> None:
    with pytest.raises(MalformedPacket):
        getattr(fields("ffff 6161", stop=0), read)()


def test_a_part_counts_as_read_and_ends_where_it_should() -> None:
    whole = fields("01 02 03 04")
    part = whole.part(2)
    assert part.rest() == b"\x01\x02"
    with pytest.raises(MalformedPacket):
        part.byte()
    assert whole.byte() == 3
    with pytest.raises(MalformedPacket, match="longer than its packet"):
        whole.part(2)
    with pytest.raises(MalformedPacket, match="1 bytes after the last field"):
        whole.end()
    assert whole.rest() == b"\x04"
    whole.end()
