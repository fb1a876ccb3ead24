"""A lost machine: what its archive gives back, up to which offset, and how the log goes on."""

import logging
import shutil
from pathlib import Path
from random import Random

import pytest

from embermq.archive.address import parse_address
from embermq.archive.archive import missing, open_archive
from embermq.archive.errors import ArchiveDamaged, ArchiveError
from embermq.archive.objects import Objects
from embermq.archive.restore import LOST_OFFSETS_MIN, refuse_new_log, restore
from embermq.protocol.packets import Publish
from embermq.store.engines.disk import DiskStore
from embermq.store.log.checkpoint import checkpoint_offsets
from embermq.store.log.errors import LogLost
from embermq.store.log.identity import read_identity
from embermq.store.log.reader import LogReader
from embermq.store.log.verify import verify
from support.archives import engine_with, publish, publish_slowly, read_all, upload_closed, wait_until, writer_of
from support.store_calls import open_session, retained_scan
from support.store_contract import Engine
from support.trimmed_log import SETTINGS, STEP_US, everything, fill_trimmed, first_offset, open_journal


def upload_all(data: Path, place: str) -> None:
    """Archive a stopped server's directory, its open segment too."""
    engine_with(data, place, SETTINGS).store.close()


def seen(data: Path) -> object:
    """The retained set, the sessions, shared queues and wills of a directory."""
    found = everything(data, 1)
    assert isinstance(found, tuple)
    return (found[0], *found[2:])  # without the past, of which less was restored


def test_a_restored_directory_is_as_the_lost_one(place: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)
    upload_all(data, place)
    truth, end = seen(data), LogReader(data / "log").bounds()[1]
    shutil.rmtree(data)
    restored = restore(place, tmp_path / "new", SETTINGS)
    assert restored.lost_from == end
    assert restored.goes_on_at % LOST_OFFSETS_MIN == 0 and restored.goes_on_at - end >= LOST_OFFSETS_MIN
    assert LogReader(tmp_path / "new" / "log").bounds()[1] == restored.goes_on_at
    assert seen(tmp_path / "new") == truth
    assert [report.findings for report in verify(tmp_path / "new" / "log") if report.findings] == []
    for path in (tmp_path / "new").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_messages_that_a_session_is_owed_come_back_with_their_segments(tmp_path: Path) -> None:
    """The newest checkpoint is younger than the oldest message of a queue."""
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place, SETTINGS)
    session = open_session(engine.store, "device", "user", 3_600)
    assert session.queue is not None
    engine.turn(STEP_US)
    message = Publish("a/b", b"owed", 1)
    session.queue.push(message, engine.store.append_publish(message, "publisher"), 1, False)
    engine.commit()
    publish_slowly(engine, 200, STEP_US)
    engine.store.close()
    assert len(checkpoint_offsets(data / "log")) > 2
    truth = seen(data)
    shutil.rmtree(data)
    restored = restore(place, tmp_path / "new", SETTINGS)
    assert restored.first_offset == 1
    assert seen(tmp_path / "new") == truth


def test_only_what_is_needed_is_fetched(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place, SETTINGS)
    publish_slowly(engine, 400, STEP_US)
    engine.store.close()
    newest = open_archive(place).checkpoints()[-1].offset
    progress: list[tuple[int, int]] = []
    restored = restore(place, tmp_path / "new", SETTINGS, lambda done, total: progress.append((done, total)))
    assert restored.first_offset == newest > 1
    assert first_offset(tmp_path / "new") == newest
    assert progress[-1] == (restored.size_bytes, restored.size_bytes)
    assert checkpoint_offsets(tmp_path / "new" / "log") == [newest, restored.goes_on_at]


def test_the_restored_server_goes_on_in_the_same_archive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 40)
    engine.store.close()
    shutil.copytree(data, tmp_path / "old")
    shutil.rmtree(data)
    restored = restore(place, data, SETTINGS)
    engine = engine_with(data, place)
    with caplog.at_level(logging.WARNING):
        publish(engine, 40)
        engine.store.close()
    assert caplog.text == ""
    archive = open_archive(place)
    lost = (restored.lost_from, restored.goes_on_at)
    assert missing(archive.segments()) == [lost]
    identity = read_identity(data / "log")
    assert identity is not None and (identity.generation, identity.lost) == (2, (lost,))
    assert (archive.log_id, archive.bounds()) == (identity.log_id, LogReader(data / "log").bounds())
    assert restored.goes_on_at in [checkpoint.offset for checkpoint in archive.checkpoints()]
    # The old machine comes back, and has gone on.
    old = engine_with(tmp_path / "old", place)
    publish(old, 40)
    wait_until(lambda: old.store.counts()["archive/failures"] > 0)
    old.store.close()
    assert "was restored by another server" in caplog.text
    assert open_archive(place).segments() == archive.segments()


def test_a_log_is_restored_again_and_again(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    random = Random(7)
    truth: dict[str, bytes] = {}
    restored_at: list[int] = []
    for number in range(4):
        data = tmp_path / f"data{number}"
        if number:
            restored = restore(place, data, SETTINGS)
            restored_at.append(restored.goes_on_at)
        engine = engine_with(data, place, SETTINGS)
        found = {one.topic_name: one.payload for one in retained_scan(engine.store, "#", "", 1_000)}
        assert found == truth
        for _ in range(60):
            engine.turn(STEP_US)
            for _ in range(4):
                topic, payload = f"t/{random.randrange(30)}", random.randbytes(random.choice([0, 1, 300]))
                engine.publish(topic, payload)
                if payload:
                    truth[topic] = payload
                else:
                    truth.pop(topic, None)
            engine.commit()
        engine.store.close()
    assert restored_at == sorted(set(restored_at))
    archive = open_archive(place)
    assert [one.generation for one in archive.generations()] == [2, 3, 4]
    assert missing(archive.segments()) == [(one.lost_from, one.first_offset) for one in archive.generations()]


def test_a_reader_of_lost_records_is_told_and_another_goes_on(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 40)
    engine.store.close()
    restored = restore(place, tmp_path / "new", SETTINGS)
    engine = engine_with(tmp_path / "new", place)
    publish(engine, 1)
    engine.store.close()
    reader = LogReader(tmp_path / "new" / "log")
    behind = [offset for batch in reader.batches(restored.lost_from) for offset in batch["offset"].to_pylist()]
    assert behind == [restored.goes_on_at + number for number in range(4)]
    with pytest.raises(LogLost, match="was lost with the machine that wrote it"):
        list(reader.batches(restored.lost_from + 1))


def test_an_archive_that_goes_on_after_a_restore_is_not_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A restore beside a server that still runs: to look at the past, or by mistake."""
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 20)
    engine.store.close()
    restore(place, tmp_path / "new", SETTINGS)
    engine = engine_with(data, place)
    publish(engine, 20)
    engine.store.close()
    assert read_all(open_archive(place), tmp_path / "fetched")[-1][0] == LogReader(data / "log").bounds()[1] - 1
    new = engine_with(tmp_path / "new", place)
    publish(new, 20)
    wait_until(lambda: new.store.counts()["archive/failures"] > 0)
    new.store.close()
    assert "has gone on to offset" in caplog.text and "stop it and restore again" in caplog.text
    assert open_archive(place).generations() == []


def test_of_two_restored_servers_one_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 20)
    engine.store.close()
    for name in ("first", "second"):
        restore(place, tmp_path / name, SETTINGS)
    for name in ("first", "second"):
        engine = engine_with(tmp_path / name, place)
        publish(engine, 20)
        wait_until(lambda: engine.store.counts()["archive/failures"] > 0 or name == "first")  # noqa: B023
        engine.store.close()
    assert caplog.text.count("was restored by another server") == 1
    assert open_archive(place).bounds() == LogReader(tmp_path / "first" / "log").bounds()


def test_a_gap_in_the_archive_is_not_restored_over(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place, SETTINGS)
    publish_slowly(engine, 400, STEP_US)
    engine.store.close()
    archive = open_archive(place)
    gone = archive.segments()[-2]
    writer_of(place, data / "log").delete(gone)
    for checkpoint in archive.checkpoints():
        if checkpoint.offset > gone.first_offset:
            writer_of(place, data / "log").delete(checkpoint)
    with pytest.raises(ArchiveError, match=f"begins at offset {gone.next_offset} and has no undamaged checkpoint"):
        restore(place, tmp_path / "new", SETTINGS)
    assert not (tmp_path / "new" / "log" / f"{gone.next_offset:020d}.log").exists()


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place, SETTINGS)
    publish_slowly(engine, 400, STEP_US)
    engine.store.close()
    truth = seen(data)
    older, newest = open_archive(place).checkpoints()[-2:]
    objects = Objects(parse_address(place))
    objects.write_bytes(f"{newest.name}.ckpt", objects.read(f"{newest.name}.ckpt")[:-1])
    restored = restore(place, tmp_path / "new", SETTINGS)
    assert restored.first_offset == older.offset
    assert f"another checkpoint is taken than that of offset {newest.offset}" in caplog.text
    assert seen(tmp_path / "new") == truth


def test_a_damaged_segment_leaves_nothing_that_a_server_would_take_for_a_log(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = engine_with(data, place)
    publish(engine, 40)
    engine.store.close()
    segment = open_archive(place).segments()[1]
    objects = Objects(parse_address(place))
    whole = objects.read(f"{segment.name}.log")
    objects.write_bytes(f"{segment.name}.log", whole[:-1] + b"x")
    with pytest.raises(ArchiveDamaged, match=f"{segment.name}.log of the archive .* is damaged"):
        restore(place, tmp_path / "new", SETTINGS)
    with pytest.raises(ArchiveError, match=r"has no log, and the archive .* has one up to offset 160"):
        refuse_new_log(tmp_path / "new" / "log", place)
    objects.write_bytes(f"{segment.name}.log", whole)
    assert restore(place, tmp_path / "new", SETTINGS).lost_from == 161
    refuse_new_log(tmp_path / "new" / "log", place)


def test_a_directory_with_a_log_is_refused(tmp_path: Path) -> None:
    data, place = tmp_path / "data", str(tmp_path / "archive")
    engine = Engine(lambda call_soon, budgets: DiskStore(data, call_soon, SETTINGS))
    publish(engine, 40)
    engine.store.close()
    upload_closed(place, data / "log")
    with pytest.raises(ArchiveError, match="has a log: restore into a directory without one"):
        restore(place, data, SETTINGS)
    assert open_journal(data).store.retained.totals()[0] == 4


def test_an_archive_without_a_segment_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    (tmp_path / "log").mkdir()
    writer_of(place, tmp_path / "log").claim()
    with pytest.raises(ArchiveError, match="has no segment: there is nothing to restore"):
        restore(place, tmp_path / "new", SETTINGS)
    assert not (tmp_path / "new").exists()
