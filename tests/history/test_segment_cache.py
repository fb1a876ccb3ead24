"""Fetched segments: kept up to a bound, the least used goes first."""

import os
from pathlib import Path

from embermq.archive.archive import open_archive
from embermq.history.segment_cache import SegmentCache
from embermq.store.log.reader import LogReader
from support.archives import filled_log, upload_closed


def test_a_segment_is_fetched_once_and_evicted_when_others_need_room(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    filled_log(tmp_path / "log", 30)
    segments = upload_closed(place, tmp_path / "log")
    cache = SegmentCache(open_archive(place), tmp_path / "cache", 4 * max(one.size_bytes for one in segments))
    logs = {one.first_offset: cache.log_of(one) for one in segments[:2]}
    for number, one in enumerate(segments[:2]):
        os.utime(logs[one.first_offset], (number, number))
    inode = logs[1].stat().st_ino
    assert cache.log_of(segments[0]) == logs[1] and logs[1].stat().st_ino == inode
    for one in segments[2:5]:
        assert LogReader(cache.log_of(one)).bounds() == (one.first_offset, one.next_offset)
    assert logs[1].exists() and not logs[segments[1].first_offset].exists()
    assert cache.log_of(segments[1]) == logs[segments[1].first_offset]


def test_what_a_crash_has_left_is_fetched_again(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    filled_log(tmp_path / "log")
    (first, *_) = upload_closed(place, tmp_path / "log")
    cache = SegmentCache(open_archive(place), tmp_path / "cache")
    path = cache.log_of(first) / f"{first.first_offset:020d}.log"
    path.write_bytes(path.read_bytes()[:-1])
    assert LogReader(cache.log_of(first)).bounds()[1] == first.next_offset
    assert path.stat().st_size == first.size_bytes
    path.unlink()
    assert (cache.log_of(first) / path.name).exists()
