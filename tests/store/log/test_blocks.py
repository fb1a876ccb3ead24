"""Blocks: a group comes back as it was, and no changed byte goes unnoticed."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.store.log.blocks import (
    HEADER_BYTES,
    SECTION_BYTES_MAX,
    Block,
    read_header,
)
from embermq.store.log.errors import BadBlock
from embermq.store.rows import Group, Kind
from support.log_samples import encode_block, flipped, read_block, row_of, rows_of, sample_group

rows = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 255),
    st.integers(0, 255),
    st.text(max_size=12).map(str.encode),
    st.binary(max_size=40),
    st.text(max_size=8).map(str.encode),
    st.binary(max_size=12),
)


def group_of(first_offset: int, records: list[tuple[int, int, int, bytes, bytes, bytes, bytes]]) -> Group:
    group = Group(first_offset)
    for record in records:
        group.append(*record)
    return group


@settings(deadline=None)
@given(first_offset=st.integers(0, 2**63), records=st.lists(rows, min_size=1, max_size=30))
def test_a_group_survives_encoding(
    first_offset: int, records: list[tuple[int, int, int, bytes, bytes, bytes, bytes]]
) -> None:
    group = group_of(first_offset, records)
    _, block = encode_block(group)
    assert len(block) % 8 == 0
    assert rows_of(read_block(block)) == rows_of(group)
    assert read_block(block).first_offset == first_offset


def test_records_are_cut_out_one_by_one_as_the_group_has_them() -> None:
    group = sample_group(17, 40)
    block = Block(encode_block(group)[1])
    assert [row_of(block.record(offset)) for offset in range(17, 57)] == rows_of(group)
    assert [block.flags(offset) for offset in range(17, 57)] == [row.flags for row in group.rows]
    assert [block.payload(offset) for offset in range(17, 57)] == [row.payload for row in group.rows]
    assert [block.properties(offset) for offset in range(17, 57)] == [row.properties for row in group.rows]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 255])
def test_a_topic_is_compared_in_its_place(length: int) -> None:
    topic = bytes(range(1, length + 1))
    others = [topic + b"x", topic[1:], *(flipped(topic, at, 7) for at in range(length))]
    group = group_of(5, [(1, Kind.PUBLISH, 0, name, b"p", b"c", b"") for name in (topic, *others)])
    block = Block(encode_block(group)[1])
    found = [offset for offset in range(block.first_offset, block.next_offset) if block.has_topic(offset, topic)]
    assert found == [offset for offset in range(block.first_offset, block.next_offset) if block.topic(offset) == topic]
    assert found[0] == 5


def test_a_block_can_begin_in_the_middle_of_bytes() -> None:
    group = sample_group(17, 40)
    encoded = bytes(encode_block(group)[1])
    block = Block(b"12345" + encoded + b"678", 5)
    assert [row_of(block.record(offset)) for offset in range(17, 57)] == rows_of(group)
    assert rows_of(block.group(20)) == rows_of(group)[3:]
    with pytest.raises(BadBlock):
        Block(b"12345" + encoded[:-1], 5)


def test_a_group_can_begin_in_the_middle_of_its_block() -> None:
    group = sample_group(17, 5)
    block = Block(encode_block(group)[1])
    assert [rows_of(block.group(offset)) for offset in range(17, 22)] == [rows_of(group)[skip:] for skip in range(5)]
    assert rows_of(block.group(3)) == rows_of(group)


def test_every_flipped_bit_is_noticed() -> None:
    _, block = encode_block(sample_group(1, 3))
    for at in range(len(block)):
        for bit in range(8):
            with pytest.raises(BadBlock):
                read_block(flipped(block, at, bit))


def test_every_cut_is_noticed() -> None:
    _, block = encode_block(sample_group(1, 3))
    for length in range(len(block)):
        with pytest.raises(BadBlock):
            read_block(block[:length])


def test_a_header_knows_its_length_and_every_bit_that_changes_it() -> None:
    _, block = encode_block(sample_group(9, 3))
    header = read_header(block)
    assert header is not None
    assert (header.first_offset, header.records, header.total_bytes) == (9, 3, len(block))
    assert read_header(block[: HEADER_BYTES - 1]) is None
    # Topic bytes to total length: whichever of them is damaged, the header no longer agrees with itself, save for
    # bits so low that the padding hides them.
    for at in range(24, 44):
        for bit in range(3, 8):
            assert read_header(flipped(block, at, bit)) is None


def test_a_block_takes_the_largest_topic_and_refuses_a_larger_one() -> None:
    largest = b"t" * 65_535
    assert read_block(encode_block(group_of(1, [(0, 1, 0, largest, b"", b"", b"")]))[1]).rows[0].topic == largest
    with pytest.raises(ValueError, match="more than 65535 bytes"):
        encode_block(group_of(1, [(0, 1, 0, largest + b"t", b"", b"", b"")]))


@settings(deadline=None)
@given(records=st.lists(st.tuples(rows, st.booleans()), min_size=1, max_size=30))
def test_columns_that_are_filled_record_by_record_make_the_same_block(
    records: list[tuple[tuple[int, int, int, bytes, bytes, bytes, bytes], bool]],
) -> None:
    """Whether the state asks for a record or not."""
    plain, filled = Group(7), Group(7)
    for (timestamp_us, kind, flags, *parts), is_applied in records:
        topic, payload, client_id, properties = parts
        if is_applied:
            filled.append(timestamp_us, kind, flags, topic, payload, client_id, properties)
        else:
            kind = Kind.PUBLISH
            filled.append_unapplied(timestamp_us, kind, flags, topic, payload, client_id, properties)
        plain.append(timestamp_us, kind, flags, topic, payload, client_id, properties)
    assert encode_block(filled) == encode_block(plain)
    assert (len(filled), filled.size_bytes) == (len(plain), plain.size_bytes)


def test_a_record_that_is_refused_leaves_the_group_as_it_was() -> None:
    group = Group(1)
    group.append(5, 1, 0, b"a", b"1", b"c")
    before = encode_block(group)
    for topic, client_id in ((b"t" * 65_536, b""), (b"t", b"c" * 65_536)):
        with pytest.raises(ValueError, match="more than 65535 bytes"):
            group.append(6, 1, 0, topic, b"2", client_id)
        with pytest.raises(ValueError, match="more than 65535 bytes"):
            group.append_unapplied(6, 1, 0, topic, b"2", client_id, b"")
    assert encode_block(group) == before


def test_an_empty_group_is_no_block() -> None:
    with pytest.raises(ValueError, match="cannot hold 0 records"):
        encode_block(Group(1))


def test_a_group_beyond_32_bit_offsets_is_refused() -> None:
    assert SECTION_BYTES_MAX == 2**31 - 1
    encode_block(group_of(1, [(0, 1, 0, b"t", b"x" * 120, b"", b"")]), bytes_max=200)
    with pytest.raises(ValueError, match="cannot hold 1 records of 208 bytes"):
        encode_block(group_of(1, [(0, 1, 0, b"t", b"x" * 130, b"", b"")]), bytes_max=200)


def test_the_header_that_comes_with_a_block_is_the_one_in_it() -> None:
    header, block = encode_block(sample_group(9, 3))
    assert header == read_header(block)


def test_columns_lie_where_the_format_says() -> None:
    group = group_of(5, [(10, 1, 2, b"a/b", b"one", b"c", b"p"), (20, 3, 4, b"d", b"", b"ef", b"")])
    _, block = encode_block(group)
    sections = [0, 16, 8, 8, 4, 4, 2, 2, 4, 3, 1, 3]
    ends = [HEADER_BYTES + sum(sections[: number + 1]) for number in range(len(sections))]
    parts = [block[start:end] for start, end in pairwise(ends)]
    assert parts == [
        (10).to_bytes(8, "little") + (20).to_bytes(8, "little"),
        (3).to_bytes(4, "little") + bytes(4),
        (1).to_bytes(4, "little") + bytes(4),
        b"\x03\x00\x01\x00",
        b"\x01\x00\x02\x00",
        b"\x01\x03",
        b"\x02\x04",
        b"a/bd",
        b"cef",
        b"p",
        b"one",
    ]
    assert block[ends[-1] :] == bytes(len(block) - ends[-1])
