"""The identity of a log, and offsets that were lost with a machine."""

from pathlib import Path

import pytest

from embermq.store.log.errors import LogCorrupt, LogLost
from embermq.store.log.identity import (
    FILE,
    LogIdentity,
    end_before,
    goes_on_at,
    log_identity,
    past_lost,
    present,
    read_identity,
    write_identity,
)
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import encode_segment_header, index_path, log_path
from embermq.store.log.verify import verify
from support.log_samples import fill, open_log, replayed, row_of

LOST = ((11, 1_000), (1_021, 5_000))


def test_a_log_keeps_its_identity(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    identity = log.identity
    log.close()
    assert open_log(tmp_path).identity == identity == read_identity(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_two_logs_have_two_identities(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert log_identity(tmp_path / "a").log_id != log_identity(tmp_path / "b").log_id


@pytest.mark.parametrize("text", ["", "{}", '{"log_id": 1, "generation": "x"}', "[1]"])
def test_a_damaged_identity_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(LogCorrupt, match="it does not say which log this is"):
        read_identity(tmp_path)


def test_lost_offsets_are_left_out_of_ranges() -> None:
    assert present(LOST, 1, 11) == [(1, 11)]
    assert present(LOST, 1, 12) == present(LOST, 1, 1_000) == [(1, 11)]
    assert present(LOST, 5, 6_000) == [(5, 11), (1_000, 1_021), (5_000, 6_000)]
    assert present(LOST, 11, 1_005) == [(1_000, 1_005)]
    assert present(LOST, 1_000, 1_001) == [(1_000, 1_001)]
    assert present(LOST, 11, 500) == []
    assert [past_lost(LOST, end) for end in (11, 12, 999, 1_000, 2_000)] == [11, 1_000, 1_000, 1_000, 5_000]
    assert [end_before(LOST, first) for first in (5, 1_000, 5_000)] == [5, 11, 1_021]


def test_who_has_read_lost_records_is_told() -> None:
    assert [goes_on_at(LOST, offset) for offset in (10, 11, 1_000, 1_021)] == [10, 1_000, 1_000, 5_000]
    with pytest.raises(LogLost, match=r"offset 12 was lost with the machine .* goes on at offset 1000"):
        goes_on_at(LOST, 12)


def test_a_log_goes_on_behind_lost_offsets(tmp_path: Path) -> None:
    """As a restore leaves it: its readers, its recovery and its verification take the gap for what it is."""
    log = open_log(tmp_path)
    rows = fill(log, [3, 4])
    log.close()
    write_identity(tmp_path, LogIdentity("x", 2, "t", ((8, 100),)))
    log_path(tmp_path, 100).write_bytes(encode_segment_header(100))
    index_path(tmp_path, 100).write_bytes(b"")
    log = open_log(tmp_path)
    assert (log.first_offset, log.next_offset) == (1, 100)
    assert log.read(8) is None and log.read(50) is None
    rows += fill(log, [2, 2])
    assert replayed(log) == rows
    found = log.read(101)
    assert found is not None and row_of(found) == rows[8]
    log.close()
    log = open_log(tmp_path)
    assert replayed(log) == rows
    log.close()
    reader = LogReader(tmp_path)
    assert reader.bounds() == (1, 104)
    for start, expected in ((1, 11), (8, 4), (100, 4), (103, 1)):
        offsets = [o for batch in reader.batches(start) for o in batch["offset"].to_pylist()]
        assert offsets == [row[0] for row in rows][-expected:]
    with pytest.raises(LogLost):
        list(reader.batches(9))
    assert [o for batch in reader.batches(5, 9) for o in batch["offset"].to_pylist()] == [5, 6, 7]
    following = reader.follow(6)
    offsets = [offset for _ in range(2) for offset in next(following)["offset"].to_pylist()]
    assert offsets == [6, 7, 100, 101, 102, 103]
    assert [report.findings for report in verify(tmp_path)] == [[], []]
