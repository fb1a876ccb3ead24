"""The tables of a local lake: how many rows each has, when it was last written, and the gaps.

Owns: reading them with delta-rs on a thread, how long the answer is given again, and that those who ask at the same
time wait for one reading.
Never: Spark. delta-rs is an extra, which is imported with the first reading: without it nothing is known of the tables.
"""

import asyncio
import heapq
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, final

from pydantic import Field

from embermq.http.fields import Model, Timestamp
from embermq.instants import microseconds, utc_text
from embermq.lake.lake import Lake

if TYPE_CHECKING:
    from deltalake import DeltaTable

FRESH_S: Final = 10.0
FRESH_PART: Final = 10.0
"""What was read is given again for FRESH_S, or for FRESH_PART times what the reading has taken, if that is longer."""
TABLES_MAX: Final = 200
GAPS_MAX: Final = 100


class TableFacts(Model):
    """A table. What cannot be read of it is left out."""

    name: str
    rows: int | None = None
    committed: Annotated[Timestamp | None, Field(description="When it was last written, compaction included.")] = None


class GapFacts(Model):
    """Records from one offset through another that a job has not read, because they were trimmed before."""

    job: str
    from_offset: int
    to_offset: int
    from_timestamp: Timestamp | None = None
    to_timestamp: Timestamp | None = None
    why: str | None = None
    noticed: Timestamp | None = None


class LakeFacts(Model):
    """What the tables of a lake hold; nothing without delta-rs or a lake."""

    tables: list[TableFacts] | None = None
    gaps: list[GapFacts] | None = None


NOTHING_KNOWN: Final = LakeFacts()


@final
class LakeTables:
    """What was last read of the tables, for all who ask."""

    __slots__ = ("_fresh_until_s", "_now_s", "_reading")

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s: Final = now_s
        self._reading: asyncio.Future[LakeFacts] | None = None
        self._fresh_until_s = 0.0

    async def get(self, read: Callable[[], Awaitable[LakeFacts]]) -> LakeFacts:
        """What was read a moment ago, or is being read, or else what `read` finds."""
        kept = self._reading
        if kept is None or (kept.done() and self._now_s() >= self._fresh_until_s):
            kept = self._reading = asyncio.ensure_future(self._read(read))
        return await asyncio.shield(kept)  # one who goes away does not end the reading for the others

    async def _read(self, read: Callable[[], Awaitable[LakeFacts]]) -> LakeFacts:
        began_s = self._now_s()
        try:
            return await read()
        finally:
            now_s = self._now_s()
            self._fresh_until_s = now_s + max(FRESH_S, FRESH_PART * (now_s - began_s))


def read_tables(lake: Path | None) -> LakeFacts:
    """Read the tables of a lake now. The first TABLES_MAX by name, and the GAPS_MAX newest gaps."""
    if lake is None:
        return NOTHING_KNOWN
    try:
        import deltalake  # noqa: F401 # the first import takes a moment, which is the thread's
    except ImportError:
        return NOTHING_KNOWN
    try:
        names = Lake(lake).table_names() if lake.is_dir() else None
    except OSError:
        names = None
    if names is None:
        return NOTHING_KNOWN
    tables = [_table_facts(lake / name, name) for name in names[:TABLES_MAX]]
    return LakeFacts(tables=tables, gaps=_gaps(lake / "gaps") if "gaps" in names else [])


def _table_facts(directory: Path, name: str) -> TableFacts:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(directory)
        return TableFacts(name=name, rows=_rows(table), committed=_committed(table))
    except (DeltaError, pa.ArrowException, OSError, ValueError, TypeError, LookupError):
        return TableFacts(name=name)


def _rows(table: "DeltaTable") -> int | None:
    """From the statistics of its files, without reading these; None if a file has none."""
    total = 0
    for count in table.get_add_actions().column("num_records").to_pylist():
        if count is None:
            return None
        total += int(count)
    return total


def _committed(table: "DeltaTable") -> str | None:
    for commit in table.history(1):
        at_ms = commit.get("timestamp")
        if isinstance(at_ms, int):
            return utc_text(at_ms * 1000)
    return None


def _gaps(directory: Path) -> list[GapFacts] | None:
    """The newest first; None if they cannot be read."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    from embermq.lake.schema import GAPS  # imports pyarrow

    def rows() -> Iterator[dict[str, Any]]:
        for batch in DeltaTable(directory).to_pyarrow_dataset().to_batches(columns=list(GAPS.names)):
            yield from batch.to_pylist()

    try:
        return [_gap_facts(row) for row in heapq.nlargest(GAPS_MAX, rows(), key=lambda row: int(row["to_offset"]))]
    except (DeltaError, pa.ArrowException, OSError, ValueError, TypeError, LookupError):
        return None


def _gap_facts(row: dict[str, Any]) -> GapFacts:
    instants = {
        name: None if row[name] is None else utc_text(microseconds(row[name]))
        for name in ("from_timestamp", "to_timestamp", "noticed")
    }
    return GapFacts(
        job=row["job"], from_offset=row["from_offset"], to_offset=row["to_offset"], why=row["why"], **instants
    )
