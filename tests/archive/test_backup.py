"""A backup: what each one adds, that it is whole while the server runs, and that it can be restored."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from embermq.archive import backup
from embermq.archive.archive import missing, open_archive
from embermq.archive.backup import BackedUp, back_up
from embermq.archive.errors import ArchiveError
from embermq.archive.restore import restore
from embermq.store.log.checkpoint import Checkpoint, checkpoint_offsets
from embermq.store.log.errors import LogCorrupt
from embermq.store.log.identity import FILE
from embermq.store.log.reader import LogReader
from embermq.store.log.recovery import WAY_ON
from embermq.store.log.verify import verify
from support.archives import KEPT, engine_with, publish, publish_slowly
from support.log_samples import block_positions, flipped, segment_files
from support.trimmed_log import SETTINGS, STEP_US, everything, fill_trimmed


def seen(data: Path) -> object:
    """The retained set, the sessions, shared queues and wills of a directory."""
    found = everything(data, 1)
    assert isinstance(found, tuple)
    return (found[0], *found[2:])


def payloads(directory: Path) -> list[bytes]:
    reader = LogReader(directory)
    start, end = reader.bounds()
    return [payload for batch in reader.batches(start, end) for payload in batch.column("payload").to_pylist()]


def test_a_backup_can_be_restored(place: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)
    end, truth = LogReader(data / "log").bounds()[1], seen(data)
    end = LogReader(data / "log").bounds()[1]
    done = back_up(data / "log", place)
    assert (done.end, done.records > 0) == (end, True)
    shutil.rmtree(data)
    assert restore(place, tmp_path / "new", SETTINGS).lost_from == end
    assert seen(tmp_path / "new") == truth
    assert [report.findings for report in verify(tmp_path / "new" / "log") if report.findings] == []


def test_a_backup_of_a_running_server_has_what_is_durable_and_the_next_adds_what_is_new(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "backup")
    engine = engine_with(data, str(tmp_path / "archive"))
    counts: list[int] = []
    for _ in range(4):
        publish(engine, 7)
        done = back_up(data / "log", place)
        assert done.end == LogReader(data / "log").bounds()[1]
        counts.append(done.records)
    assert all(counts)
    again = back_up(data / "log", place)
    assert (again.records, again.size_bytes, again.end) == (0, 0, sum(counts) + 1)
    before = payloads(data / "log")
    engine.store.close()
    archive = open_archive(place)
    assert len(archive.segments()) == 4 and missing(archive.segments()) == []
    for segment in archive.segments():
        archive.check(segment)
    restored = restore(place, tmp_path / "new", KEPT)
    assert restored.segments == 4
    assert payloads(tmp_path / "new" / "log") == before
    # The restored log goes on at the same place.
    engine = engine_with(tmp_path / "new", str(tmp_path / "other"))
    engine.store.close()
    engine = engine_with(tmp_path / "new", str(tmp_path / "other"))
    publish(engine, 7)
    engine.store.close()
    assert back_up(tmp_path / "new" / "log", place).records > 0
    assert missing(open_archive(place).segments()) == [(restored.lost_from, restored.goes_on_at)]


def test_a_backup_that_has_missed_trimmed_segments_begins_at_a_checkpoint(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "backup")
    engine = engine_with(data, str(tmp_path / "archive"), SETTINGS)
    publish(engine, 7)
    back_up(data / "log", place)
    publish_slowly(engine, 400, STEP_US)
    assert back_up(data / "log", place).records > 0
    first = LogReader(data / "log").bounds()[0]
    engine.store.close()
    assert first > 10 and len(missing(open_archive(place).segments())) == 1
    assert restore(place, tmp_path / "new", SETTINGS).first_offset >= first


def test_a_log_that_is_trimmed_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)

    def trimmed(directory: Path) -> list[Checkpoint]:
        found = [Checkpoint(directory, offset) for offset in checkpoint_offsets(directory)]
        found[0].path.unlink()
        return found

    monkeypatch.setattr(backup, "checkpoints", trimmed)
    with pytest.raises(ArchiveError, match="run the backup again"):
        back_up(data / "log", str(tmp_path / "backup"))


def test_what_cannot_be_backed_up_is_said(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    for directory in (data, other):
        engine = engine_with(directory, str(tmp_path / f"archive of {directory.name}"), SETTINGS)
        publish(engine, 7)
        engine.store.close()
    place = str(tmp_path / "backup")
    assert back_up(data / "log", place) != BackedUp(0, 0, 1, 1, 0)
    with pytest.raises(ArchiveError, match="the archive of another log"):
        back_up(other / "log", place)
    (other / "log" / FILE).unlink()
    with pytest.raises(ArchiveError, match="start its server once"):
        back_up(other / "log", place)


@pytest.mark.parametrize("is_added", [False, True])
def test_what_is_before_damage_can_be_backed_up_and_gone_on_with(tmp_path: Path, is_added: bool) -> None:
    settings = replace(KEPT, segment_bytes=1 << 20)
    data, place = tmp_path / "data", str(tmp_path / "backup")
    engine = engine_with(data, str(tmp_path / "archive"), settings)
    publish(engine, 5)
    if is_added:
        back_up(data / "log", place)
    publish(engine, 15)
    engine.store.close()
    written = payloads(data / "log")
    segment = segment_files(data / "log")[0]
    position, _ = list(block_positions(data / "log"))[10]
    segment.write_bytes(flipped(segment.read_bytes(), position + 100))
    with pytest.raises(LogCorrupt, match=f"position {position}: .*; {place} has the records before it"):
        back_up(data / "log", place)
    with pytest.raises(LogCorrupt, match=f"position {position}: .*; {WAY_ON}"):
        engine_with(data, str(tmp_path / "archive"))
    restored = restore(place, tmp_path / "new", KEPT)
    assert payloads(tmp_path / "new" / "log") == written[: 4 * 10]
    assert restored.lost_from == 4 * 10 + 1
    engine = engine_with(tmp_path / "new", str(tmp_path / "other"))
    publish(engine, 1)
    engine.store.close()
    assert back_up(tmp_path / "new" / "log", place).records == 4
