"""A lake as the HTTP interface sees it: the file of the pipeline's progress, and tables written without Spark."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from embermq.lake.lake import LAKE_FORMAT

NOTICED = datetime(2026, 1, 31, 14, 3, 7, tzinfo=UTC)
_INSTANT = pa.timestamp("us", "UTC")
_GAPS = pa.schema(
    [
        ("job", pa.string()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
        ("from_timestamp", _INSTANT),
        ("to_timestamp", _INSTANT),
        ("why", pa.string()),
        ("noticed", _INSTANT),
    ]
)


def write_gaps(lake: Path, count: int, job: str = "retained") -> None:
    """Gaps of six offsets each, from offset 0, 10, 20, ... on."""
    rows = [
        {
            "job": job,
            "from_offset": 10 * number,
            "to_offset": 10 * number + 5,
            "from_timestamp": None,
            "to_timestamp": NOTICED,
            "why": "trimmed",
            "noticed": NOTICED,
        }
        for number in range(count)
    ]
    write_deltalake(lake / "gaps", pa.Table.from_pylist(rows, _GAPS))


def write_small_lake(lake: Path) -> None:
    """A pipeline that has stopped: `messages` has 3 rows and a lag, `retained_closed` 2 rows, and there is a gap."""
    (lake / "_embermq").mkdir(parents=True)
    jobs = {"messages": {"offset": 4, "records": 3, "rate": 1.5}}
    progress = {"state": "stopped", "written": time.time(), "jobs": jobs}
    (lake / "_embermq" / "progress.json").write_text(json.dumps(progress))
    (lake / "_embermq" / "lake.json").write_text(json.dumps({"format": LAKE_FORMAT}))
    for name, rows in (("messages", 3), ("retained_closed", 2)):
        write_deltalake(lake / name, pa.table({"offset": list(range(rows))}))
    write_gaps(lake, 1, "messages")
