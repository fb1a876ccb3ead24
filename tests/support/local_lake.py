"""A lake of a recorded log, written without Spark: what the jobs would have written, computed in plain Python."""

from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from embermq.history.directory import DirectoryLog
from embermq.instants import EPOCH
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions
from support.recorded import Recorder

INSTANT = pa.timestamp("us", "UTC")
RETAINED = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int8()),
        ("offset", pa.int64()),
        ("valid_from", INSTANT),
    ]
)
CLOSED = pa.schema([*RETAINED, ("valid_to", INSTANT), ("offset_to", pa.int64())])
MESSAGES = pa.schema([("offset", pa.int64()), ("timestamp", INSTANT), ("topic", pa.string()), ("payload", pa.binary())])
STATS = pa.schema(
    [
        ("topic", pa.string()),
        *((name, INSTANT) for name in ("window_start", "window_end", "first_seen", "last_seen")),
        *((name, pa.int64()) for name in ("messages", "bytes", "longest_silence_us")),
    ]
)
CLIENTS = pa.schema(
    [("timestamp", INSTANT), ("event", pa.string()), ("client_id", pa.string()), ("reason", pa.string())]
)
REJECTS = pa.schema([("offset", pa.int64()), ("field", pa.string()), ("reason", pa.string())])
WINDOW_US = 300_000_000


def local_lake(directory: Path, made: Recorder, through: int | None = None) -> Lake:
    """The tables `messages`, `retained`, `retained_closed` and `topic_stats` of a log.

    With `through`, `retained` has applied no further record: as between the two commits of a batch.
    """
    lake = Lake(directory)
    lake.open()
    last = made.log.next_offset - 1
    kept = made.retained() if through is None else made.retained(before=through + 1)
    began = {offset: (us, topic, payload, qos) for offset, us, topic, payload, qos in made.retained_events}
    write(lake, "messages", MESSAGES, [(row[0], instant(row[1]), row[2], row[3]) for row in made.published])
    current = [
        (topic, payload, qos, offset, instant(began[offset][0])) for topic, (payload, qos, offset) in kept.items()
    ]
    write(lake, "retained", RETAINED, current, through if through is not None else last)
    write(lake, "retained_closed", CLOSED, closed(made), last)
    write(lake, "topic_stats", STATS, stats(made))
    Positions(lake, DirectoryLog(made.data)).save({"retained": last + 1 if through is None else through + 1}, {})
    return lake


def closed(made: Recorder) -> list[tuple[Any, ...]]:
    found = []
    open_now: dict[str, tuple[int, int, bytes, int]] = {}
    for offset, us, topic, payload, qos in made.retained_events:
        before = open_now.pop(topic, None)
        if before is not None:
            found.append((topic, before[2], before[3], before[0], instant(before[1]), instant(us), offset))
        if payload is not None:
            open_now[topic] = (offset, us, payload, qos)
    return found


def stats(made: Recorder) -> list[tuple[Any, ...]]:
    windows: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for _, us, topic, payload, *_ in made.published:
        windows[topic, us // WINDOW_US * WINDOW_US].append((us, len(payload)))
    found = []
    for (topic, start), seen in windows.items():
        times = [us for us, _ in seen]
        longest = max((later - earlier for earlier, later in pairwise(times)), default=0)
        bounds = (instant(start), instant(start + WINDOW_US), instant(times[0]), instant(times[-1]))
        found.append((topic, *bounds, len(seen), sum(size for _, size in seen), longest))
    return found


def write(lake: Lake, name: str, schema: pa.Schema, rows: list[tuple[Any, ...]], through: int | None = None) -> None:
    """Make a table of rows."""
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    applied = None
    if through is not None:
        applied = CommitProperties(app_transactions=[Transaction(app_id="retained", version=through)])
    write_deltalake(lake.table(name), table, commit_properties=applied)


def instant(us: int) -> Any:
    return EPOCH + timedelta(microseconds=us)
