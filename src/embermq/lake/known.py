"""Between which instants the tables of a job are known.

Owns: the answer, from the position of the job (`lake.positions`), the log's end as the pipeline saw it last
(`lake.progress`), and the log itself where this machine has its files; and the sentences for an instant outside.
A job that has read the log up to its end is known up to the instant at which that was the end, also if nothing has come
for hours.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple, final

from embermq.history.directory import DirectoryLog
from embermq.instants import EPOCH, utc_text
from embermq.lake.errors import NotKnown, PipelineError
from embermq.lake.lake import Lake
from embermq.lake.positions import SINCE, UNTIL, Versions, is_valid, read_positions
from embermq.lake.progress import LOG_KNOWN, read_progress
from embermq.lake.stream_offsets import check_same_log
from embermq.store.log.errors import LogError

RowInstants = tuple[int | None, int | None]
"""The oldest and the newest instant in the rows of a table, in microseconds."""


class Known(NamedTuple):
    """The instants at which a job's tables are known, both included, and the first offset that they do not have.

    `since_us` is None if there are no rows, and nothing was recorded.
    """

    since_us: int | None
    until_us: int
    next_offset: int

    def __str__(self) -> str:
        return f"known up to {utc_text(self.until_us)}, the log before offset {self.next_offset}"

    @property
    def until(self) -> datetime:
        """The last instant, in UTC."""
        return EPOCH + timedelta(microseconds=self.until_us)

    def check(self, instant_us: int) -> None:
        """NotKnown if an instant lies outside."""
        asked = f"the retained set at {utc_text(instant_us)} is not known"
        if instant_us > self.until_us:
            raise NotKnown(
                f"{asked}: the lake has read the log up to {utc_text(self.until_us)} (before offset "
                f"{self.next_offset}); the server itself may know it (`ember retained ls --as-of`)"
            )
        if self.since_us is not None and instant_us < self.since_us:
            raise NotKnown(f"{asked}: the lake knows it from {utc_text(self.since_us)} on")


@final
@dataclass(frozen=True)
class Recorded:
    """What a lake had recorded of its jobs before its tables were opened: each table has at least that."""

    lake: Lake
    positions: Mapping[str, Mapping[str, Any]]
    progress: Mapping[str, Any]

    def known(self, job: str, versions: Versions, through: int, rows_us: Callable[[], RowInstants]) -> Known | None:
        """The instants at which tables are known that have these versions and have applied the log up to an offset.

        `rows_us` finds the instants in them, if one is not recorded. None: they are empty.
        """
        position = self.positions.get(job, {})
        if not position or not is_valid(position, versions):
            position = {}
        next_offset = max(int(position.get("offset", 0)), through + 1)
        until = [self.until_us(job, next_offset) or 0, *self._from_log(position, next_offset)]
        since_us: int | None = _number(position, SINCE, 0)
        if not any(until) or not since_us:  # as in a lake of an earlier version
            oldest_us, newest_us = rows_us()
            since_us = since_us or oldest_us
            until.append((newest_us or 1) - 1)  # other records may have the same timestamp
        return Known(since_us, max(until), next_offset) if max(until) > 0 else None

    def until_us(self, job: str, next_offset: int) -> int | None:
        """The last instant that is known of tables which have all records before an offset, from the files alone."""
        position = self.positions.get(job, {})
        until = [0]
        if int(position.get("offset", next_offset + 1)) <= next_offset:
            until.append(_number(position, UNTIL, 0))
        if next_offset >= _number(self.progress, "log_end", 1 << 62):
            until.append(_number(self.progress, LOG_KNOWN, 0))
        return max(until) or None

    def _from_log(self, position: Mapping[str, Any], next_offset: int) -> list[int]:
        """What the log says, if this machine has the one that the position belongs to."""
        data = self.lake.data_directory()
        if data is None or "segment" not in position or not (data / "log").is_dir():
            return []
        try:
            log = DirectoryLog(data)
            check_same_log(log, position)
            found = log.known_until_us(next_offset)
        except (PipelineError, LogError, OSError, ValueError):
            return []
        return [] if found is None else [found]


def recorded(lake: Lake) -> Recorded:
    """Read what is recorded. To be called before the tables are opened."""
    try:
        return Recorded(lake, read_positions(lake), read_progress(lake))
    except OSError:
        return Recorded(lake, {}, {})


def _number(found: Mapping[str, Any], key: str, default: int) -> int:
    value = found.get(key)
    return value if isinstance(value, int) else default
