"""The log on a disk that fails: nothing is there twice, nothing is lost, and it goes on when the disk does."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from embermq.store.log.writer import Log
from support.log_samples import (
    NOW_US,
    TESTS,
    fill,
    open_log,
    read_many,
    replayed,
    row_of,
    rows_of,
    sample_group,
)


class FailingDisk:
    """Stands in for an `os` function and fails the n-th call from now, once, after doing a part of its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, part: float = 0) -> None:
        self._real = getattr(os, name)
        self._part = part
        self.fail_at = -1
        self.calls = 0
        self.armed = True
        monkeypatch.setattr(os, name, self)

    def __call__(self, *args: object) -> object:
        self.calls += self.armed
        if not self.armed or self.calls != self.fail_at:
            return self._real(*args)
        if self._part and len(args) == 3 and isinstance(args[0], int):
            descriptor, data, position = args
            assert isinstance(data, (bytes, bytearray, memoryview))
            self._real(descriptor, data[: int(len(data) * self._part)], position)
        elif self._part:
            self._real(*args)
        raise OSError(errno.EIO, "the disk failed")


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("pwrite", 0),
        ("pwrite", 0.5),
        ("pwrite", 1),
        ("fdatasync", 1),
        ("fsync", 1),
        ("rename", 0),
        ("rename", 1),
        ("open", 0),
    ],
)
@pytest.mark.parametrize("call", [1, 2, 3, 5])
@pytest.mark.parametrize("truncating", [True, False])
def test_a_group_that_failed_is_written_once_when_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: int, part: float, truncating: bool
) -> None:
    log = Log(tmp_path, segment_bytes=1200, segment_age_s=3600, sync=True)
    rows = fill(log, [3, 3])
    if not truncating:
        monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EROFS, "read-only")))
    disk = FailingDisk(monkeypatch, function, part)
    disk.fail_at = call
    failed = 0
    while len(rows) < 36:
        group = sample_group(log.next_offset, 3)
        disk.armed = True
        try:
            log.append(group, NOW_US)
        except OSError as error:
            disk.armed = False
            assert error.errno == errno.EIO
            failed += 1
            log.abandon_segment()
            assert log.next_offset == group.first_offset
            assert replayed(log) == rows
            continue
        disk.armed = False
        rows += rows_of(group)
        assert replayed(log) == rows
    assert failed == (disk.calls >= call)
    assert [row_of(record) for record in read_many(log, range(1, 37))] == rows
    monkeypatch.undo()
    log.close()
    log = open_log(tmp_path, segment_bytes=1200)
    assert replayed(log) == rows
    assert log.next_offset == 37
    assert fill(log, [2])[0][0] == 37


def test_after_a_failed_sync_the_group_goes_to_a_new_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, segment_bytes=1 << 20, segment_age_s=3600, sync=True)
    rows = fill(log, [3])
    disk = FailingDisk(monkeypatch, "fdatasync")
    disk.fail_at = 1
    group = sample_group(4, 3)
    with pytest.raises(OSError, match="the disk failed"):
        log.append(group, NOW_US)
    log.append(group, NOW_US)
    assert [info.first_offset for info in log.segments()] == [1, 4]
    assert replayed(log) == rows + rows_of(group)


def test_a_crash_right_after_a_failed_sync_leaves_a_log_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could be cut off: the unacknowledged block is there, whole, with or without a new segment behind it."""
    log = Log(tmp_path, segment_bytes=1 << 20, segment_age_s=3600, sync=True)
    rows = fill(log, [3])
    monkeypatch.setattr(os, "ftruncate", lambda *_: None)
    disk = FailingDisk(monkeypatch, "fdatasync")
    disk.fail_at = 1
    group = sample_group(4, 3)
    with pytest.raises(OSError, match="the disk failed"):
        log.append(group, NOW_US)
    monkeypatch.undo()
    log.close()
    syncs = FailingDisk(monkeypatch, "fsync")
    log = open_log(tmp_path)
    assert replayed(log) == rows + rows_of(group)
    assert syncs.calls >= 1  # it counts now, so it must have been synced
    log.close()


def test_a_full_disk_gives_its_error_and_the_log_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A real short write: the process may not make files larger than 4 KiB, then it may."""
    program = f"""
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
from support.log_samples import NOW_US, replayed, rows_of, sample_group
from embermq.store.log.writer import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = Log(Path({str(tmp_path / "log")!r}), segment_bytes=1 << 20, segment_age_s=3600, sync=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
rows, failed = [], 0
while len(rows) < 300:
    group = sample_group(log.next_offset, 10 if failed < 3 else 100)
    try:
        log.append(group, NOW_US)
    except OSError as error:
        failed += 1
        if failed >= 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        continue
    rows += rows_of(group)
assert replayed(log) == rows
log.close()
print(failed, len(rows))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    failed, rows = map(int, done.stdout.split())
    assert failed == 3
    log = open_log(tmp_path / "log")
    assert [row[0] for row in replayed(log)] == list(range(1, rows + 1))


def test_closing_lets_go_of_the_directory_even_if_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    rows = fill(log, [2])
    disk = FailingDisk(monkeypatch, "fsync")
    disk.fail_at = 1
    with pytest.raises(OSError, match="the disk failed"):
        log.close()
    monkeypatch.undo()
    assert replayed(open_log(tmp_path)) == rows
