"""The written format: a parser made from docs/log-format.md alone reads what the server writes, byte for byte."""

import re
import struct
import zlib
from pathlib import Path
from typing import Any

from embermq.store.log.entries import INDEX_ENTRY
from embermq.store.log.segments import entry_of, packed_entry
from embermq.store.log.writer import CHECK_BYTES
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from support.log_samples import Row, encode_block, fill, open_log, sample_group, segment_files

PAGE = (Path(__file__).parent.parent.parent.parent / "docs" / "log-format.md").read_text()


def dumps() -> list[bytes]:
    """The hex dumps of the page: an address, up to sixteen bytes, a comment."""
    found = []
    for dump in re.findall(r"```hex\n(.*?)```", PAGE, re.DOTALL):
        data = b""
        for line in dump.splitlines():
            address, octets = line.split("  ")[:2]
            assert int(address, 16) == len(data)
            data += bytes.fromhex(octets)
        found.append(data)
    return found


def parse_segment(data: bytes) -> list[Row]:
    """A parser written from the page alone."""
    assert data[:8] == b"EMBERLOG"
    crc, version, first_offset, zero = struct.unpack("<IIQQ", data[8:32])
    assert (crc, version, zero) == (zlib.crc32(data[12:32]), 1, 0)
    rows: list[Row] = []
    at = 32
    while at < len(data):
        assert at % 8 == 0
        assert data[at : at + 4] == b"EMBK"
        crc, version, header, n, first, *sections, length, zero = struct.unpack("<IHHIQ4III", data[at + 4 : at + 48])
        block = data[at : at + length]
        assert (crc, version, header, zero) == (zlib.crc32(block[8:]), 1, 48, 0)
        assert first == first_offset + len(rows)
        columns: list[Any] = []
        position = 48
        for width, code in ((8, "q"), (4, "I"), (4, "I"), (2, "H"), (2, "H"), (1, "B"), (1, "B")):
            columns.append(struct.unpack(f"<{n}{code}", block[position : position + n * width]))
            position += n * width
        timestamps, payload_lengths, property_lengths, topic_lengths, client_id_lengths, kinds, flags = columns
        texts = []
        for lengths, total in zip(
            (topic_lengths, client_id_lengths, property_lengths, payload_lengths), sections, strict=True
        ):
            assert sum(lengths) == total
            column = []
            for one in lengths:
                column.append(block[position : position + one])
                position += one
            texts.append(column)
        assert block[position:] == bytes(-position % 8)
        topics, client_ids, properties, payloads = texts
        rows += zip(
            range(first, first + n), timestamps, kinds, flags, topics, payloads, client_ids, properties, strict=True
        )
        at += length
    return rows


def test_the_example_is_what_the_server_writes(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    group = Group(1)
    group.append(1_700_000_000_000_000, Kind.PUBLISH, 1 | RETAIN_FLAG, b"plant/a", b"21.5", b"s1")
    group.append(1_700_000_000_000_250, Kind.PUBLISH, 0, b"plant/b", b"hi", b"s2", b"\x26\x00\x01k\x00\x01v")
    log.append(group, 0)
    log.close()
    written = [segment_files(tmp_path, suffix)[0].read_bytes() for suffix in (".log", ".idx")]
    assert written == dumps()
    assert [path.name for path in segment_files(tmp_path)] == re.findall(r"`(\d{20}\.log)`", PAGE)


def test_a_parser_made_from_the_page_reads_the_example() -> None:
    segment, index = dumps()
    assert parse_segment(segment) == [
        (1, 1_700_000_000_000_000, 1, 5, b"plant/a", b"21.5", b"s1", b""),
        (2, 1_700_000_000_000_250, 1, 0, b"plant/b", b"hi", b"s2", b"\x26\x00\x01k\x00\x01v"),
    ]
    assert struct.unpack("<QQqIIIIII", index) == (32, 1, 1_700_000_000_000_000, 2, 128, 14, 4, 7, 6)


def test_a_parser_made_from_the_page_reads_any_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=4000)
    written = fill(log, [1, 2, 3, 50, 1, 7, 20, 1])
    log.close()
    paths = segment_files(tmp_path)
    assert len(paths) > 1
    assert [row for path in paths for row in parse_segment(path.read_bytes())] == written


def test_an_entry_that_is_packed_at_once_is_the_one_of_the_header() -> None:
    header, block = encode_block(sample_group(9, 3))
    assert packed_entry(block, 32, 9, -5, 3) == INDEX_ENTRY.pack(*entry_of(header, 32, -5))


def test_the_page_lists_every_kind() -> None:
    listed = {int(number): name for number, name in re.findall(r"^\| (\d+) ([a-z ]+?) \|", PAGE, re.MULTILINE)}
    assert listed == {int(kind): kind.name.lower().replace("_", " ") for kind in Kind}


def test_the_page_says_how_much_is_checked_on_opening() -> None:
    assert f"newest {CHECK_BYTES >> 20} MiB" in PAGE
