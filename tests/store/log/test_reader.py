"""The log's reader: every durable record once and in order, by offset and by instant, while the server writes."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embermq.store.log.arrow import SCHEMA
from embermq.store.log.errors import LogCorrupt, LogTrimmed, NewerFormat, NotALog
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import ENTRY_BYTES
from embermq.store.log.writer import Log
from embermq.store.rows import Group, Kind
from support.log_samples import (
    NOW_US,
    Row,
    block_positions,
    fill,
    flipped,
    open_log,
    rows_of,
    sample_group,
    segment_files,
)


def rows_in(batches: Iterator[pa.RecordBatch]) -> list[Row]:
    """The rows of batches, as the writer knew them."""
    rows: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SCHEMA
        columns = batch.to_pydict()
        rows += zip(
            columns["offset"],
            batch.column("timestamp").cast(pa.int64()).to_pylist(),
            columns["kind"],
            columns["flags"],
            (topic.encode() for topic in columns["topic"]),
            columns["payload"],
            (client_id.encode() for client_id in columns["client_id"]),
            columns["properties"],
            strict=True,
        )
    return rows


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 15), max_size=25),
    segment_bytes=st.integers(300, 6000),
    rows_max=st.integers(1, 40),
    bytes_max=st.integers(1, 5000),
    data=st.data(),
)
def test_coalesced_batches_equal_the_rows_that_were_written(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    segment_bytes: int,
    rows_max: int,
    bytes_max: int,
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = open_log(directory, segment_bytes=segment_bytes)
    written = fill(log, sizes)
    reader = LogReader(directory)
    assert reader.bounds() == (1, len(written) + 1)
    start = data.draw(st.integers(1, len(written) + 1))
    end = data.draw(st.integers(start, len(written) + 1))
    batches = list(reader.batches(start, end, rows=rows_max, bytes=bytes_max))
    assert all(1 <= batch.num_rows <= rows_max for batch in batches)
    assert rows_in(iter(batches)) == written[start - 1 : end - 1]
    log.close()


def test_small_blocks_make_large_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    written = fill(log, [1] * 500)
    reader = LogReader(tmp_path)
    assert [batch.num_rows for batch in reader.batches(1)] == [500]
    assert [batch.num_rows for batch in reader.batches(1, rows=200)] == [200, 200, 100]
    assert rows_in(reader.batches(1)) == written


def test_a_large_block_is_cut_into_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    group = Group(1)
    for number in range(100):
        group.append(NOW_US, Kind.PUBLISH, 0, b"t", bytes([number]) * 10_000, b"c")
    log.append(group, NOW_US)
    reader = LogReader(tmp_path)
    assert [batch.num_rows for batch in reader.batches(1, rows=30)] == [30, 30, 30, 10]
    small = list(reader.batches(1, bytes=100_000))
    assert len(small) >= 10
    assert rows_in(iter(small)) == rows_of(group)
    assert [batch.num_rows for batch in reader.batches(1, bytes=1)] == [1] * 100


def test_only_the_asked_columns_are_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    written = fill(log, [1, 7, 3])
    for columns in (["offset"], ["topic"], ["payload", "kind"], ["flags", "offset", "properties"]):
        (batch,) = LogReader(tmp_path).batches(1, columns=columns)
        assert batch.schema.names == columns
        whole = pa.Table.from_batches(LogReader(tmp_path).batches(1)).select(columns)
        assert pa.Table.from_batches([batch]) == whole
    assert batch.num_rows == len(written)
    with pytest.raises(ValueError, match="the log has no column qos; it has offset, timestamp, kind"):
        next(LogReader(tmp_path).batches(1, columns=["qos"]))


def test_an_empty_range_is_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert list(LogReader(tmp_path).batches(1)) == []
    fill(log, [4])
    assert list(LogReader(tmp_path).batches(3, 3)) == []
    assert list(LogReader(tmp_path).batches(5)) == []


def test_what_is_not_durable_yet_is_refused_not_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [4])
    with pytest.raises(ValueError, match="offset 9 is not in the log yet, which ends before offset 5"):
        next(LogReader(tmp_path).batches(1, 10))


def test_what_has_no_index_entry_is_not_seen(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    written = fill(log, [2, 3])
    index = segment_files(tmp_path, ".idx")[0]
    index.write_bytes(index.read_bytes()[: ENTRY_BYTES + 11])
    reader = LogReader(tmp_path)
    assert reader.bounds() == (1, 3)
    assert rows_in(reader.batches(1)) == written[:2]


def test_an_instant_finds_the_first_record_not_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=700)
    timestamps_us: list[int] = []
    for block in ([10, 10, 20], [20], [20, 30, 30], [40], [40, 40], [70], [70, 71]):
        group = Group(log.next_offset)
        for timestamp_us in block:
            group.append(timestamp_us, Kind.PUBLISH, 0, b"t" * 100, b"", b"")
        log.append(group, 0)
        timestamps_us += block
    assert len(log.segments()) > 2
    reader = LogReader(tmp_path)
    for instant in range(75):
        older = sum(timestamp_us < instant for timestamp_us in timestamps_us)
        assert reader.offset_at(instant) == 1 + older
    log.roll()
    log.trim(log.segments()[1].first_offset)
    assert reader.offset_at(0) == log.first_offset


def test_an_empty_log_has_its_beginning_at_every_instant(tmp_path: Path) -> None:
    open_log(tmp_path)
    assert LogReader(tmp_path).offset_at(NOW_US) == 1


def test_trimmed_offsets_fail_loudly(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    written = fill(log, [3] * 20)
    reader = LogReader(tmp_path)
    reading = reader.batches(1, 61, rows=3)
    assert next(reading).num_rows == 3
    log.trim(40)
    first = log.first_offset
    with pytest.raises(LogTrimmed) as caught:
        list(reading)
    assert caught.value.first_available == first
    with pytest.raises(LogTrimmed, match=f"offset 5 is no longer in the log, which now begins at offset {first}"):
        next(reader.batches(5))
    assert reader.bounds() == (first, 61)
    assert rows_in(reader.batches(first)) == written[first - 1 :]


def test_the_tail_is_followed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    written = fill(log, [2])
    waits: list[float] = []

    def write_instead_of_waiting(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) % 2:
            written.extend(fill(log, [3]))

    following = LogReader(tmp_path).follow(2, 0.25, wait=write_instead_of_waiting)
    assert rows_in(islice(following, 15)) == written[1:]
    assert len(waits) == 27
    assert set(waits) == {0.25}


def test_a_closed_segment_without_a_good_index_is_read_all_the_same(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3000)
    written = fill(log, [3] * 20)
    log.close()
    index = segment_files(tmp_path, ".idx")[0]
    good = index.read_bytes()
    assert len(good) > 3 * ENTRY_BYTES
    for damaged in (b"", good[:ENTRY_BYTES], os.urandom(len(good)), good + good[:ENTRY_BYTES]):
        index.write_bytes(damaged)
        assert rows_in(LogReader(tmp_path).batches(1)) == written
        assert LogReader(tmp_path).offset_at(NOW_US + 4000) == 4
    index.unlink()
    assert rows_in(LogReader(tmp_path).batches(1)) == written
    for at in range(ENTRY_BYTES, 2 * ENTRY_BYTES):
        index.write_bytes(flipped(good, at))
        assert rows_in(LogReader(tmp_path).batches(1)) == written


def test_a_range_of_blocks_is_found_without_a_good_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3000)
    fill(log, [3] * 20)
    log.close()
    first = LogReader(tmp_path).segments()[0]
    index = segment_files(tmp_path, ".idx")[0]
    good = index.read_bytes()
    for damaged in (b"", good[:ENTRY_BYTES], os.urandom(len(good)), good):
        index.write_bytes(damaged)
        found = LogReader(tmp_path).block_range(1, 10**9, 1 << 20, 1000)
        os.close(found.descriptor)
        assert (found.entries.first_offset(0), found.position) == (1, 32)
        assert found.entries.next_offset() == first.next_offset
    segment = segment_files(tmp_path)[0]
    segment.write_bytes(segment.read_bytes()[:-8])
    with pytest.raises(LogCorrupt):
        LogReader(tmp_path).block_range(1, 10**9, 1 << 20, 1000)


def test_reading_that_is_given_up_leaves_no_file_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [2] * 20)
    log.close()
    reader = LogReader(tmp_path)
    files = files_open_in(tmp_path)
    for _ in range(20):
        runs = reader.runs(1, rows=2)
        assert next(runs).start == 1
        del runs
    assert files_open_in(tmp_path) == files


def files_open_in(directory: Path) -> list[str]:
    names: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the directory itself
            names.append(os.readlink(descriptor))
    return sorted(name for name in names if name.startswith(str(directory)))


def test_zeros_at_the_end_of_the_last_index_do_not_hide_what_comes_before(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    written = fill(log, [2, 3, 4])
    log.close()
    index = segment_files(tmp_path, ".idx")[0]
    index.write_bytes(index.read_bytes()[: 2 * ENTRY_BYTES] + bytes(3 * ENTRY_BYTES))
    assert LogReader(tmp_path).bounds() == (1, 6)
    assert rows_in(LogReader(tmp_path).batches(1)) == written[:5]


def test_every_flipped_bit_of_a_block_is_named_by_file_and_position(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    written = fill(log, [2, 2, 2])
    log.close()
    (path,) = segment_files(tmp_path)
    start, end = list(block_positions(tmp_path))[1]
    good = path.read_bytes()
    for at in range(start, end):
        path.write_bytes(flipped(good, at, at % 8))
        with pytest.raises(LogCorrupt) as caught:
            list(LogReader(tmp_path).batches(1))
        assert (caught.value.file, caught.value.position) == (str(path), start)
    path.write_bytes(flipped(good, end - 1))
    assert rows_in(LogReader(tmp_path, verify=False).batches(1))[-2:] == written[-2:]


def test_a_file_cut_below_what_is_durable_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [2, 2])
    (path,) = segment_files(tmp_path)
    last = list(block_positions(tmp_path))[-1][0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LogCorrupt) as caught:
        list(LogReader(tmp_path).batches(1))
    assert (caught.value.file, caught.value.position) == (str(path), last)


def test_a_missing_middle_segment_is_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1500)
    fill(log, [3] * 20)
    second, third = log.segments()[1:3]
    log.close()
    second.path.unlink()
    with pytest.raises(LogCorrupt, match=f"{second.first_offset} to {third.first_offset - 1} are missing"):
        list(LogReader(tmp_path).batches(1))


def test_what_a_failed_write_left_behind_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, segment_bytes=1 << 20, segment_age_s=60, sync=True)
    written = fill(log, [3])
    monkeypatch.setattr(os, "ftruncate", lambda *_: None)
    real, failing = os.fdatasync, [True]

    def sync(descriptor: int) -> None:
        if failing and failing.pop():
            raise OSError(5, "the disk failed")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    group = sample_group(4, 2)
    with pytest.raises(OSError, match="the disk failed"):
        log.append(group, NOW_US)
    assert rows_in(LogReader(tmp_path).batches(1)) == written
    log.append(group, NOW_US)
    assert rows_in(LogReader(tmp_path).batches(1)) == written + rows_of(group)


def test_what_is_no_log_is_told_in_a_sentence(tmp_path: Path) -> None:
    for directory, detail in ((tmp_path / "none", "there is no such directory"), (tmp_path, "no segment file in it")):
        with pytest.raises(NotALog, match=f"{directory} is not an EmberMQ log: .*{detail}"):
            LogReader(directory)
    (tmp_path / f"{1:020d}.log").write_bytes(b"something else entirely, and longer than a header")
    with pytest.raises(LogCorrupt, match="the segment's header is missing"):
        LogReader(tmp_path)


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    from zlib import crc32

    checked = (2).to_bytes(4, "little") + (1).to_bytes(8, "little") + bytes(8)
    (tmp_path / f"{1:020d}.log").write_bytes(b"EMBERLOG" + crc32(checked).to_bytes(4, "little") + checked)
    with pytest.raises(NewerFormat, match="log format 2"):
        LogReader(tmp_path)


def test_a_thread_reads_while_another_writes(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=4000)

    def write() -> None:
        for _ in range(300):
            log.append(sample_group(log.next_offset, 3), NOW_US)

    writer = threading.Thread(target=write)
    writer.start()
    rows: list[Row] = []
    for batch in LogReader(tmp_path).follow(1, 0.001):
        rows += rows_in(iter([batch]))
        if len(rows) == 900:
            break
    writer.join()
    assert rows == [row for first in range(1, 900, 3) for row in rows_of(sample_group(first, 3))]


def test_another_process_reads_while_the_server_writes(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=20_000)
    program = f"""
from embermq.store.log.reader import LogReader
offsets = 0
for batch in LogReader({str(tmp_path)!r}).follow(1, 0.001, columns=["offset"]):
    for offset in batch.column("offset").to_pylist():
        offsets += 1
        assert offset == offsets
    if offsets == 2000:
        break
print(offsets)
"""
    reading = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(400):
        fill(log, [5])
    out, errors = reading.communicate(timeout=60)
    assert (out, errors) == (b"2000\n", b"")


def test_reading_needs_neither_the_writer_nor_the_broker() -> None:
    program = "import sys, embermq.store.log.reader; print(*[n for n in sys.modules if n.startswith('embermq')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    modules = set(done.stdout.split())
    assert "embermq.store.log.reader" in modules
    assert (
        not {"embermq.store.log.writer", "embermq.store.log.recovery", "embermq.broker", "embermq.transport"} & modules
    )
