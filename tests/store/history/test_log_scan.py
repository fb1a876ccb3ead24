"""Messages of the log by filter, in pieces: complete, in order, bounded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.store.history.log_scan import DECODED_MAX, LogScan
from embermq.store.history.pieces import HistoryPiece, LogSpan
from embermq.store.history.trimmed import Fetched
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.lookup import Stretch
from embermq.store.log.reader import LogReader
from embermq.store.log.writer import Log
from embermq.store.rows import Group, Kind

START_US = 1_700_000_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    log = Log(tmp_path, segment_bytes=4_000, segment_age_s=3600, sync=False)
    yield log
    log.close()


def append(log: Log, count: int, records: int = 5) -> None:
    """Groups of a second each; record n is of the topic `t/n%3`, every seventh one is no message."""
    for _ in range(count // records):
        group = Group(log.next_offset)
        for row in range(records):
            offset = group.first_offset + row
            kind = Kind.CONNECTED if offset % 7 == 0 else Kind.PUBLISH
            at_us = START_US + group.first_offset * 1_000_000
            group.append(at_us, kind, 1, b"t/%d" % (offset % 3), b"%d" % offset, b"client")
        log.append(group, group.rows[-1].timestamp_us)


def span(topic_filter: str, offset: int = 0, **bounds: int) -> LogSpan:
    given = {"from_us": 0, "before_offset": 0, "before_us": 0, "limit": 50, "bytes_max": 1 << 20, **bounds}
    return LogSpan(topic_filter, offset, **given)


def everything(scan: LogScan, topic_filter: str, **bounds: int) -> tuple[list[int], HistoryPiece]:
    offsets: list[int] = []
    at = 0
    while True:
        piece = scan.piece(span(topic_filter, at, **bounds))
        offsets += [found.offset for found in piece.messages]
        at = piece.next_offset
        if piece.is_end or piece.is_done:
            return offsets, piece


def messages(first: int, end: int, topic: int | None = None) -> list[int]:
    return [offset for offset in range(first, end) if offset % 7 and (topic is None or offset % 3 == topic)]


@pytest.mark.parametrize("limit", [1, 3, 50, 10_000])
@pytest.mark.parametrize("scan_records", [1, 13, 10_000])
def test_the_pieces_make_every_message_once_in_order(log: Log, limit: int, scan_records: int) -> None:
    append(log, 400)
    scan = LogScan(log, scan_records=scan_records)
    assert everything(scan, "#", limit=limit)[0] == messages(1, 401)
    assert everything(scan, "t/1", limit=limit)[0] == messages(1, 401, 1)
    assert everything(scan, "nothing/+", limit=limit)[0] == []


def test_blocks_of_a_stretch_are_not_kept_decoded_but_for_a_few(log: Log) -> None:
    append(log, 400)
    segment = log.segments()[0]
    entries = LogReader(log.directory).entries(1, segment.blocks)
    data = segment.path.read_bytes()[entries.position(0) : entries.end()]
    stretch = Stretch(segment.path, data, entries.offsets(), entries.positions())
    assert len(entries) > 2 * DECODED_MAX
    scan, following = LogScan(log), {1: 1, 3: 1, 10: 1}
    found: dict[int, list[int]] = {limit: [] for limit in following}
    while min(following.values()) < segment.next_offset:
        for limit, at in following.items():  # replays that go on in turn
            piece = scan.piece(span("#", limit=limit), Fetched(at, stretch))
            found[limit] += [one.offset for one in piece.messages]
            following[limit] = piece.next_offset
    assert all(offsets == messages(1, segment.next_offset) for offsets in found.values())
    assert len(scan._decoded) <= DECODED_MAX and not stretch._blocks


def test_a_message_is_as_it_was_published(log: Log) -> None:
    append(log, 5)
    found = LogScan(log).piece(span("#")).messages[1]
    assert (found.offset, found.timestamp_us, found.client_id) == (2, START_US + 1_000_000, "client")
    assert (found.message.topic_name, found.message.payload, found.message.qos) == ("t/2", b"2", 1)


def test_a_piece_is_bounded_in_bytes_but_has_one_message(log: Log) -> None:
    append(log, 50)
    assert len(LogScan(log).piece(span("#", bytes_max=1)).messages) == 1
    assert len(LogScan(log).piece(span("#", bytes_max=12)).messages) == 3


def test_a_piece_ends_after_so_many_bytes_of_the_log_without_a_message(log: Log) -> None:
    append(log, 400)
    piece = LogScan(log, scan_bytes=1_000).piece(span("nothing"))
    assert not piece.is_end and piece.messages == [] and 1 < piece.next_offset < 400


def test_the_end_is_told_and_what_comes_later_follows(log: Log) -> None:
    append(log, 20)
    scan = LogScan(log)
    piece = everything(scan, "#")[1]
    assert piece.is_end and not piece.is_done and piece.next_offset == 21
    append(log, 10)
    more = scan.piece(span("#", piece.next_offset))
    assert [found.offset for found in more.messages] == messages(21, 31)


def test_instants_and_offsets_bound_it(log: Log) -> None:
    append(log, 400)
    scan = LogScan(log)

    def at(offset: int) -> int:
        return START_US + offset * 1_000_000

    assert everything(scan, "#", from_us=at(101))[0] == messages(101, 401)
    assert everything(scan, "#", from_us=at(101) + 1)[0] == messages(106, 401)
    assert everything(scan, "#", from_us=1)[0] == messages(1, 401)
    assert everything(scan, "#", from_us=at(1000))[0] == []
    offsets, piece = everything(scan, "#", from_us=at(101), before_us=at(201))
    assert offsets == messages(101, 201) and piece.is_done
    offsets, piece = everything(scan, "#", before_offset=33)
    assert offsets == messages(1, 33) and piece.is_done


def test_what_was_trimmed_is_an_error_and_the_log_begins_later(log: Log) -> None:
    append(log, 400)
    scan = LogScan(log)
    assert log.begins_us() == 0
    log.trim(201)
    first = log.first_offset
    assert 1 < first <= 201
    with pytest.raises(LogTrimmed):
        scan.piece(span("#", first - 1))
    assert log.begins_us() == START_US + first * 1_000_000
    with pytest.raises(LogTrimmed):
        scan.piece(span("#", from_us=log.begins_us() - 1))
    assert everything(scan, "#", from_us=log.begins_us())[0] == messages(first, 401)
    assert everything(scan, "#")[0] == messages(first, 401), "without an instant it begins where the log does"


def test_a_damaged_index_is_made_again_from_the_blocks(log: Log, tmp_path: Path) -> None:
    append(log, 400)
    indexes = sorted(tmp_path.glob("*.idx"))
    indexes[1].write_bytes(bytes(indexes[1].stat().st_size))
    assert everything(LogScan(log), "#", from_us=1)[0] == messages(1, 401)
