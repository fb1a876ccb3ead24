"""A log that was restored from its archive: its lost offsets are no rows, and who has read them is told."""

import shutil
from pathlib import Path

import pytest

from embermq.archive.restore import Restored, restore
from embermq.history.location import directory_location
from embermq.history.opening import open_log
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions, check_log
from embermq.lake.schema import LOG_ARROW
from embermq.spark.options import parse_source_options
from embermq.spark.source.reader import EmberReader, OffsetRange
from embermq.spark.source.staging import stage
from embermq.store.log.errors import LogLost
from support.archives import engine_with, publish
from support.trimmed_log import SETTINGS


@pytest.fixture
def restored(tmp_path: Path) -> Restored:
    """A data directory: 80 records, a hole, 12 records."""
    place = str(tmp_path / "archive")
    engine = engine_with(tmp_path / "old", place)
    publish(engine, 20)
    engine.store.close()
    done = restore(place, tmp_path / "data", SETTINGS)
    engine = engine_with(tmp_path / "data", place)
    publish(engine, 3)
    engine.store.close()
    assert (done.lost_from, done.goes_on_at) == (81, 2_000_000_000)
    return done


def offsets(reader: EmberReader) -> list[int]:
    found: list[int] = []
    for partition in reader.partitions():
        assert isinstance(partition, OffsetRange)
        found += [offset for batch in reader.read(partition) for offset in batch["offset"].to_pylist()]
    return found


def test_a_read_has_the_records_on_both_sides_of_the_hole(tmp_path: Path, restored: Restored) -> None:
    options = parse_source_options({"path": str(tmp_path / "data")})
    reader = EmberReader(options, LOG_ARROW)
    assert len(reader.partitions()) == 2
    assert offsets(reader) == [*range(1, 81), *range(2_000_000_000, 2_000_000_012)]


@pytest.mark.newest_spark
def test_a_stream_passes_the_hole_in_one_step(tmp_path: Path, restored: Restored) -> None:
    from embermq.spark.source.stream_reader import EmberStreamReader

    options = parse_source_options({"path": str(tmp_path / "data"), "maxRecordsPerTrigger": "50"})
    reader = EmberStreamReader(options, LOG_ARROW)
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    steps = [int(start["offset"])]
    found: list[int] = []
    while (end := reader.latestOffset(start, limit)) != start:
        for partition in reader.partitions(start, end):
            found += [offset for batch in reader.read(partition) for offset in batch["offset"].to_pylist()]
        steps.append(int(end["offset"]))
        start = end
    assert steps == [1, 51, 2_000_000_000, 2_000_000_012]
    assert found == [*range(1, 81), *range(2_000_000_000, 2_000_000_012)]


@pytest.mark.newest_spark
def test_a_stream_that_has_read_lost_records_is_told(tmp_path: Path, restored: Restored) -> None:
    from embermq.spark.source.stream_reader import EmberStreamReader

    old = EmberStreamReader(parse_source_options({"path": str(tmp_path / "old")}), LOG_ARROW)
    shutil.rmtree(tmp_path / "archive")
    engine = engine_with(tmp_path / "old", str(tmp_path / "archive"))
    publish(engine, 1)  # which the restored log does not have
    engine.store.close()
    position = old.reportLatestOffset()
    assert position["offset"] == 85
    reader = EmberStreamReader(parse_source_options({"path": str(tmp_path / "data")}), LOG_ARROW)
    with pytest.raises(LogLost, match="offset 85 was lost with the machine"):
        reader.latestOffset(position, reader.getDefaultReadLimit())


def test_a_lake_that_has_read_lost_records_is_refused_and_another_goes_on(tmp_path: Path, restored: Restored) -> None:
    log = open_log(directory_location(tmp_path / "data"))
    lake = Lake(tmp_path / "lake")
    lake.open()
    Positions(lake, log).save({"messages": 81}, {})
    assert Positions(lake, log).get("messages", {}) == 81
    (lake.state_directory / "positions.json").write_text('{"messages": {"offset": 85, "segment": 81, "since": 7}}')
    with pytest.raises(LakeError, match=r"has tables of records that .* does not have: offset 85 was lost"):
        check_log(lake, log)


def test_a_batch_of_the_pipeline_may_have_the_hole_in_it(tmp_path: Path, restored: Restored) -> None:
    location = directory_location(tmp_path / "data")
    staged = stage(location, 75, 2_000_000_003, ["publish"], tmp_path / "staging", 2)
    assert len(staged.files) == 2 and staged.kinds == {"publish"}
    log = open_log(location)
    assert log.ranges(81, 2_000_000_001) == [(2_000_000_000, 2_000_000_001)]
    with pytest.raises(LogLost):
        log.ranges(82, 2_000_000_001)
