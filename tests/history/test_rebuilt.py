"""As of an instant that only the archive has: as the history of a log that was never trimmed says."""

from pathlib import Path
from random import Random

import pytest

from embermq.archive.archive import open_archive
from embermq.archive.errors import ArchiveError
from embermq.history.rebuilt import FREE_BYTES, STATE_BYTES_MIN, ArchivedPast
from embermq.store.engines.opening import JournalSettings
from embermq.store.errors import HistoryTrimmed, NotWanted
from embermq.store.interface import Retained, Store
from support.archives import KEPT, engine_with, wait_until, writer_of
from support.store_contract import Engine, expiring
from support.trimmed_log import SETTINGS, STEP_US


def fill(engine: Engine, rounds: int, seed: int = 1) -> None:
    """Publish, replace, clear, and let expire."""
    random = Random(seed)
    for number in range(rounds):
        engine.turn(STEP_US)
        for _ in range(4):
            payload = b"" if random.random() < 0.2 else b"%d" % number + bytes(random.choice([1, 400]))
            properties = expiring(random.randrange(1, 2_000)) if payload and random.random() < 0.3 else b""
            engine.publish(f"t/{random.randrange(12)}/{random.randrange(3)}", payload, properties=properties)
        engine.commit()
        if number % 10 == 0:
            wait_until(lambda: engine.store.counts()["archive/pending-bytes"] == 0)


def shown(found: list[Retained]) -> list[object]:
    return [(one.topic_name, one.payload, one.qos, one.properties, one.offset, one.timestamp_us) for one in found]


def of_past(past: ArchivedPast, instant_us: int, topic_filter: str = "#", after: str = "") -> list[object]:
    return shown([one for piece in past.pieces(topic_filter, instant_us, after) for one in piece])


@pytest.fixture
def truth(tmp_path: Path) -> Store:
    """The same history in a log that is never trimmed."""
    engine = engine_with(tmp_path / "truth", str(tmp_path / "unused"), KEPT)
    fill(engine, 300)
    return engine.store


def archived(tmp_path: Path, place: str, settings: JournalSettings = SETTINGS) -> Path:
    engine = engine_with(tmp_path / "data", place, settings)
    fill(engine, 300)
    engine.store.close()
    return tmp_path / "data"


def test_the_archive_knows_every_instant(place: str, tmp_path: Path, truth: Store) -> None:
    archived(tmp_path, place)
    archive = open_archive(place)
    assert len(archive.checkpoints()) > 3
    last_us = archive.segments()[-1].last_timestamp_us
    random = Random(3)
    instants = [random.randrange(STEP_US, last_us) for _ in range(5)] + [
        archive.checkpoints()[1].timestamp_us,
        archive.checkpoints()[1].timestamp_us - 1,
        archive.segments()[2].first_timestamp_us,
        last_us + 1,
    ]
    past = ArchivedPast(place, tmp_path / "cache", cache_bytes=100_000, states_bytes=3 * STATE_BYTES_MIN)
    for instant_us in instants:
        for topic_filter in ("#", "t/+/1"):
            expected = shown(truth.history.as_of(topic_filter, "", 1_000, instant_us))
            assert of_past(past, instant_us, topic_filter) == expected
        assert len(expected) > 3
        assert of_past(past, instant_us, "t/+/1", expected[1][0]) == expected[2:]  # type: ignore[index]
        one = past.message("t/3/1", instant_us)
        assert shown([one] if one else []) == [row for row in expected if row[0] == "t/3/1"]  # type: ignore[index]
    assert len(list((tmp_path / "cache").glob("as-of-*"))) == 3
    fetched = sum(path.stat().st_size for path in (tmp_path / "cache" / "segments").rglob("*") if path.is_file())
    assert 0 < fetched < 140_000
    for path in (tmp_path / "cache").rglob("*"):
        assert path.is_dir() or path.parent.name == "state" or path.stat().st_mode & 0o077 == 0
    past.close()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["segments"]


def test_an_instant_before_the_archive_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    data = archived(tmp_path, place)
    archive = open_archive(place)
    second = archive.checkpoints()[1]
    writer = writer_of(place, data / "log")
    for segment in archive.segments():
        if segment.next_offset <= second.offset:
            writer.delete(segment)
    writer.delete(archive.checkpoints()[0])
    past = ArchivedPast(place, tmp_path / "cache")
    with pytest.raises(HistoryTrimmed, match="the history is kept from"):
        of_past(past, second.timestamp_us - 1)
    assert of_past(past, second.timestamp_us)


def test_a_gap_in_the_archive_is_not_read_over(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    data = archived(tmp_path, place)
    archive = open_archive(place)
    later = archive.checkpoints()[1].offset
    gone = [one for one in archive.segments() if one.first_offset >= later][1]
    writer_of(place, data / "log").delete(gone)
    past = ArchivedPast(place, tmp_path / "cache")
    before_us, after_us = gone.first_timestamp_us - 1, gone.last_timestamp_us + STEP_US
    assert of_past(past, before_us)
    for checkpoint in archive.checkpoints():
        if checkpoint.offset > later:
            writer_of(place, data / "log").delete(checkpoint)
    with pytest.raises(ArchiveError, match=f"lacks offsets {gone.first_offset} to {gone.next_offset - 1}"):
        of_past(past, after_us)
    assert [path.name for path in (tmp_path / "cache").glob("as-of-*")] != []
    past.close()


def test_a_restored_log_has_one_past(tmp_path: Path) -> None:
    from embermq.archive.restore import restore

    place = str(tmp_path / "archive")
    archived(tmp_path, place)
    restored = restore(place, tmp_path / "new", SETTINGS)
    engine = engine_with(tmp_path / "new", place, SETTINGS)
    engine.now_us = restored.last_timestamp_us
    fill(engine, 30, seed=9)
    expected = shown(engine.store.history.as_of("#", "", 1_000, engine.now_us - 5 * STEP_US))
    instant_us = engine.now_us - 5 * STEP_US
    engine.store.close()
    past = ArchivedPast(place, tmp_path / "cache")
    assert of_past(past, instant_us) == expected
    past.close()


def test_what_was_made_answers_for_other_instants_without_the_archive(tmp_path: Path, truth: Store) -> None:
    place = tmp_path / "archive"
    archived(tmp_path, str(place))
    archive = open_archive(place)
    first, second = archive.checkpoints()[:2]
    until_us = second.timestamp_us - 1
    past = ArchivedPast(str(place), tmp_path / "cache")
    assert not past.is_made(until_us)
    assert of_past(past, until_us) == shown(truth.history.as_of("#", "", 1_000, until_us))
    place.rename(tmp_path / "away")
    for instant_us in range(first.timestamp_us, until_us, STEP_US // 2):
        assert past.is_made(instant_us)
        assert of_past(past, instant_us) == shown(truth.history.as_of("#", "", 1_000, instant_us))
    assert len(list((tmp_path / "cache").glob("as-of-*"))) == 1
    with pytest.raises(ArchiveError, match="no server has written to it"):
        of_past(past, first.timestamp_us - 1)
    past.close()


def test_what_nobody_wants_any_more_is_given_up_and_goes_on_later(tmp_path: Path, truth: Store) -> None:
    place = str(tmp_path / "archive")
    data = archived(tmp_path, place)
    checkpoints = open_archive(place).checkpoints()
    for checkpoint in checkpoints:
        writer_of(place, data / "log").delete(checkpoint)  # so that all records must be applied
    instant_us = checkpoints[-1].timestamp_us - 1
    past = ArchivedPast(place, tmp_path / "cache")
    asked: list[int] = []

    def is_wanted() -> bool:
        asked.append(1)
        return len(asked) % 2 == 1

    given_up = 0
    while True:
        try:
            piece = past.piece("#", instant_us, "", 1_000, 1 << 20, is_wanted)
            break
        except NotWanted:
            given_up += 1
    assert 0 < given_up < len(asked)
    assert shown(piece.found()) == shown(truth.history.as_of("#", "", 1_000, instant_us))
    past.close()


def test_a_disk_that_is_nearly_full_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "archive")
    archived(tmp_path, place)
    monkeypatch.setattr("embermq.history.rebuilt.disk_bytes", lambda directory: (1 << 40, FREE_BYTES))
    past = ArchivedPast(place, tmp_path / "cache")
    with pytest.raises(ArchiveError, match="has no space for what is fetched of the archive"):
        of_past(past, open_archive(place).checkpoints()[1].timestamp_us)
    assert list((tmp_path / "cache").iterdir()) == []


def test_before_the_first_record_nothing_was_retained(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    archived(tmp_path, place)
    past = ArchivedPast(place, tmp_path / "cache")
    assert of_past(past, 1) == []
    assert past.begins_us() == 0
    past.close()
