"""A log read from its directory, its archive and its server: the same rows, the same offsets, the same sentences."""

import json
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from embermq.history.opening import open_log
from embermq.history.source import COMMIT_US_MAX, ReadableLog
from embermq.lake.errors import PipelineError
from embermq.spark.data_source import EmberDataSource
from embermq.spark.options import parse_source_options
from embermq.spark.source.columns import SOURCE_SCHEMA
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import LogIdentity, log_identity, write_identity
from embermq.store.log.segments import encode_segment_header, log_path
from embermq.store.rows import Kind
from support.archives import upload_closed, writer_of
from support.checkpoints import trim_with_checkpoint
from support.log_server import LogServer
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


class Ways:
    """A log that can be read in four ways."""

    def __init__(self, made: Recorder, server: LogServer, archive: Path) -> None:
        self.made = made
        self.server = server
        self.archive = str(archive)
        self.options = {
            "directory": {"path": str(made.data)},
            "archive": {"path": self.archive},
            "server": server.options,
            "both": {"path": self.archive, **server.options},
        }

    def log(self, way: str) -> ReadableLog:
        return open_log(parse_source_options(self.options[way]).location)

    @property
    def archived_end(self) -> int:
        return self.log("archive").bounds()[1]


@pytest.fixture
def ways(recorder: Recorders, tmp_path: Path) -> Iterator[Ways]:
    made = recorder(segment_bytes=20_000, group_records=7)
    for number in range(2_000):
        made.publish(f"a/{number % 13}", b"%d" % number * (number % 5), qos=number % 3, retain=number % 2 == 0)
        if number % 50 == 0:
            made.record(Kind.SUBSCRIBED, 1, "a/#", b"\0" * 8, "client")
    made.flush()
    log_identity(made.data / "log")
    assert len(upload_closed(str(tmp_path / "archive"), made.data / "log")) > 3
    with LogServer(made.data) as server:
        yield Ways(made, server, tmp_path / "archive")


def read(options: dict[str, str], **more: Any) -> list[dict[str, Any]]:
    """A batch read as Spark does it: the reader crosses to other processes."""
    source = EmberDataSource(options | {name: str(value) for name, value in more.items()})
    reader = source.reader(source.schema())
    parts = pickle.loads(pickle.dumps(list(reader.partitions())))
    reader = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def test_every_way_gives_the_same_rows(ways: Ways) -> None:
    end = ways.archived_end
    expected = read(ways.options["directory"], endingOffsets=end)
    assert len(expected) == end - 1 > 1_000
    for way in ("archive", "server", "both"):
        assert read(ways.options[way], endingOffsets=end) == expected, way
    whole = read(ways.options["directory"])
    assert len(whole) == 2_040
    for way in ("server", "both"):
        assert read(ways.options[way]) == whole, way
    chosen = {"filter": "a/7", "startingOffsets": 333, "endingOffsets": end - 5, "kinds": "publish"}
    for way in ("archive", "server", "both"):
        assert read(ways.options[way], **chosen) == read(ways.options["directory"], **chosen), way


def test_every_way_finds_instants_segments_and_bounds(ways: Ways) -> None:
    directory = ways.log("directory")
    end = ways.archived_end
    assert ways.log("server").bounds() == ways.log("both").bounds() == directory.bounds()
    assert ways.log("archive").bounds() == (1, end)
    for offset, moment_us, *_ in ways.made.published[::97]:
        for way in ("server", "both") if offset >= end else ("archive", "server", "both"):
            log = ways.log(way)
            assert log.segment_of(offset) == directory.segment_of(offset)
            for instant_us in (moment_us, moment_us - 1):
                assert log.offset_at(instant_us) == directory.offset_at(instant_us), (way, offset)
    for way in ("archive", "server", "both"):
        assert ways.log(way).segment_of(0) is None
        assert ways.log(way).offset_at(0) == 1
    assert ways.log("server").offset_at(1 << 62) == ways.log("both").offset_at(1 << 62) == directory.bounds()[1]


def test_every_way_says_up_to_which_instant_it_is_known(ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    moments_us = {offset: moment_us for offset, moment_us, *_ in ways.made.published}
    for way in ways.options:
        assert ways.log(way).known_until_us(700) == moments_us[700] - 1, way
    now_us = time.time_ns() // 1000
    assert ways.log("directory").end().next_offset == ways.log("server").end().next_offset == 2_041
    # An archive is behind its server: what comes after its last record is not known.
    archived = ways.log("archive").end()
    assert archived == (ways.archived_end, moments_us[ways.archived_end - 1] - 1)
    assert ways.log("archive").known_until_us(ways.archived_end) == archived.known_us
    # The clock of this machine does not count where the server has its own.
    monkeypatch.setattr(time, "time_ns", lambda: (now_us + 3_600_000_000) * 1000)
    assert ways.log("directory").known_until_us(2_041) == now_us + 3_600_000_000 - COMMIT_US_MAX
    assert ways.log("both").end().known_us <= now_us + 60_000_000


@pytest.mark.newest_spark
def test_a_stream_goes_on_another_way(ways: Ways) -> None:
    """Offsets are the log's own, so a Spark checkpoint of one way is good for the others."""
    seen: list[int] = []
    offset: dict[str, Any] | None = None
    for way, until in (("directory", 500), ("server", 900), ("archive", 1_000), ("both", 2_041)):
        source = EmberDataSource(ways.options[way] | {"endingOffsets": str(until)})
        reader: Any = source.streamReader(SOURCE_SCHEMA)
        begin = reader.initialOffset() if offset is None else offset
        offset = json.loads(json.dumps(reader.latestOffset(begin, reader.getDefaultReadLimit())))
        for _ in range(2):  # a batch that is done again is the same
            batches = [batch for part in reader.partitions(begin, offset) for batch in reader.read(part)]
            rows = pa.Table.from_batches(batches)["offset"].to_pylist()
        seen += rows
    assert seen == list(range(1, 2_041))


@pytest.mark.newest_spark
def test_a_checkpoint_of_another_log_is_refused_every_way(ways: Ways, recorder: Recorders) -> None:
    other = recorder("other", segment_bytes=20_000)
    other.now_us += 77
    for number in range(2_000):
        other.publish("b", b"%d" % number)
    other.flush()
    foreign: Any = EmberDataSource({"path": str(other.data)}).streamReader(SOURCE_SCHEMA)
    start = foreign.latestOffset({"offset": 1}, foreign.getDefaultReadLimit())
    for way in ways.options:
        reader: Any = EmberDataSource(ways.options[way]).streamReader(SOURCE_SCHEMA)
        with pytest.raises(PipelineError, match="the checkpoint belongs to another log than "):
            reader.latestOffset(start, reader.getDefaultReadLimit())


def test_what_was_trimmed_is_told_by_the_server_and_read_from_the_archive(ways: Ways, tmp_path: Path) -> None:
    whole = read(ways.options["directory"])
    server = ways.log("server")
    batches = server.batches(1, 2_041, 10, ["offset"])
    next(batches)
    first = trim_with_checkpoint(ways.made, 800, tmp_path / "scratch")
    for way in ("directory", "server"):
        with pytest.raises(LogTrimmed, match=f"offset 5 is no longer in the log, which now begins at offset {first}"):
            read(ways.options[way], startingOffsets=5)
        kept = read(ways.options[way], startingOffsets=5, failOnDataLoss="false")
        assert [row["offset"] for row in kept] == list(range(first, 2_041))
    assert read(ways.options["both"]) == whole


def test_a_checkpoint_of_the_log_comes_every_way(ways: Ways, tmp_path: Path) -> None:
    first = trim_with_checkpoint(ways.made, 800, tmp_path / "scratch")
    writer = writer_of(ways.archive, ways.made.data / "log")
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    for way in ("directory", "server", "both"):
        with ways.log(way).undamaged_checkpoint(first, 2_041) as checkpoint:
            assert checkpoint is not None and checkpoint.offset == first
            found[way] = [(row.topic, row.payload) for rows in checkpoint.rows() for row in rows]
        with ways.log(way).undamaged_checkpoint(first + 1, 2_041) as checkpoint:
            assert checkpoint is None
    assert len(found["directory"]) >= 10
    assert found["directory"] == found["server"] == found["both"]
    assert writer.archive.checkpoints() == []


def test_an_archive_and_a_server_of_different_logs_are_refused(ways: Ways) -> None:
    write_identity(ways.made.data / "log", LogIdentity("another"))
    with pytest.raises(PipelineError, match=r"the archive .*archive is not of the log of http://127.0.0.1:\d+: name"):
        ways.log("both")


def test_offsets_that_were_lost_with_a_machine_are_passed_over(ways: Ways, tmp_path: Path) -> None:
    """A restored log begins far behind what the archive had: nobody has the offsets in between."""
    end, begins = ways.archived_end, 1_000_000_000
    directory = tmp_path / "restored" / "log"
    directory.mkdir(parents=True)
    log_path(directory, begins).write_bytes(encode_segment_header(begins))
    restored = Recorder(directory.parent, segment_bytes=4_000)
    for number in range(300):
        restored.publish("after", b"%d" % number)
    restored.flush()
    write_identity(directory, LogIdentity(log_identity(ways.made.data / "log").log_id, 2, "token", ((end, begins),)))
    both = {"path": ways.archive}
    with LogServer(restored.data) as server:
        both |= server.options
        expected = [*range(1, end), *range(begins, begins + 300)]
        assert open_log(parse_source_options(both).location).ranges(1, begins + 300) == [
            (1, end),
            (begins, begins + 300),
        ]
        assert [row["offset"] for row in read(both)] == expected
        upload_closed(ways.archive, directory)
        archived = ways.archived_end
        assert ways.log("archive").ranges(5, archived) == [(5, end), (begins, archived)]
        assert [row["offset"] for row in read(both)] == expected
        assert [row["offset"] for row in read({"path": ways.archive})] == [*range(1, end), *range(begins, archived)]
        log = ways.log("archive")
        assert next(log.batches(end, begins + 5, 100, ["offset"]))["offset"][0].as_py() == begins
        with pytest.raises(
            LogTrimmed, match=f"offset {end + 1} is no longer in the log, which now begins at offset 1000"
        ):
            next(log.batches(end + 1, begins + 5, 100, ["offset"]))
    restored.close()
