"""Progress: how far each job is, how fast, and how many records behind the log.

Owns: the numbers of a running pipeline, the line that shows them, and the file that keeps them for `status`.
Records are counted by offsets of the log, whether they have rows in a job's tables or not.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from embermq.lake.files import json_object
from embermq.lake.lake import STATE_DIRECTORY, Lake

if TYPE_CHECKING:
    from embermq.history.source import LogEnd

RATE_OVER_S: Final = 30.0

LOG_KNOWN: Final = "log_known_us"
PROGRESS_FILE: Final = f"{STATE_DIRECTORY}/progress.json"


@dataclass
class JobProgress:
    """One job since the pipeline started."""

    name: str
    offset: int | None = None  # the next record it reads
    records: int = 0
    rate: float = 0.0  # records a second, over the last RATE_OVER_S
    lag: int | None = None  # records behind the log's end
    batches: int = 0
    violations: int | None = None  # the rows of a table of violations
    known_since_us: int | None = None
    known_until_us: int | None = None
    """Between which instants its tables are known (`lake.known`)."""
    _seen: list[tuple[float, int]] = field(default_factory=list, repr=False)

    def advance(self, start: int, end: int) -> None:
        """Add a batch."""
        self.offset = end
        self.records += end - start
        self.batches += 1

    def update(self, log_end: int, now_s: float) -> None:
        """Compute rate and lag."""
        self._seen = [seen for seen in self._seen if now_s - seen[0] <= RATE_OVER_S]
        self._seen.append((now_s, self.records))
        since_s, since_records = self._seen[0]
        self.rate = (self.records - since_records) / (now_s - since_s) if now_s > since_s else 0.0
        if self.offset is not None:
            self.lag = max(0, log_end - self.offset)

    def know(self, since_us: int | None, until_us: int | None, end: "LogEnd") -> None:
        """Keep between which instants its tables are known: up to the log's end, if it has read that."""
        is_at_end = self.offset is not None and self.offset >= end.next_offset
        self.known_since_us = since_us
        self.known_until_us = max(until_us or 0, end.known_us) if is_at_end else until_us

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if not key.startswith("_")}


def progress_line(jobs: Iterable[JobProgress]) -> str:
    """All jobs in one line."""
    return " | ".join(
        f"{job.name} {job.records:,} records, {job.rate:,.0f}/s, "
        + ("lag unknown" if job.lag is None else f"{job.lag:,} behind")
        for job in jobs
    )


def write_progress(lake: Lake, jobs: Iterable[JobProgress], log_end: "LogEnd", state: str) -> None:
    """Write how far the pipeline is, for `status` and `lake.known`, which start no Spark."""
    progress = {
        "state": state,
        "written": time.time(),
        "log_end": log_end.next_offset,
        LOG_KNOWN: log_end.known_us,
        "jobs": {job.name: job.as_dict() for job in jobs},
    }
    lake.files.write(PROGRESS_FILE, json.dumps(progress))


def read_progress(lake: Lake) -> dict[str, Any]:
    """What the last pipeline wrote; empty if there was none."""
    return json_object(lake.files.read(PROGRESS_FILE))
