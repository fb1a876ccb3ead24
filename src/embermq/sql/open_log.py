"""The messages of a log as Arrow, for programs: `embermq.open_log`.

Owns: the public way to read a log beside a running server.
Never: writing, but for the topic indexes that make the next query read less.
"""

import os
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embermq.history.whole_log import WholeLog
from embermq.instants import instant_us, microseconds
from embermq.lake.rows import log_columns, of_kinds, shown_columns
from embermq.lake.schema import MESSAGES_ARROW
from embermq.lake.topic_masks import arrow_mask, valid_filter
from embermq.sql.dataset import MessagesDataset, topic_names
from embermq.store.log.by_topic.chosen_blocks import BlockChooser, ReadCount
from embermq.store.log.by_topic.topic_index import TopicIndex
from embermq.store.rows import Kind

Instant = datetime | str | None
"""A datetime (UTC unless it has a zone), or what `--since` of a command takes: `2026-01-31T14:03`, `15m`, `now`."""

_END_US: Final = 1 << 62


def open_log(directory: str | os.PathLike[str], archive: str | None = None) -> "OpenLog":
    """The log of a server, by its data directory or by the log directory in it. The server may run.

    With the address of its archive, what was trimmed from the directory is read from there. Raises
    `embermq.store.log.errors.NotALog` if there is no log, `embermq.archive.errors.ArchiveError` if the archive cannot
    be used.
    """
    path = Path(directory)
    return OpenLog(path / "log" if (path / "log").is_dir() else path, archive)


@final
class OpenLog:
    """The messages of a log: what was published and is durable, with the columns of `schema`.

    No file stays open between calls, and each call sees the log as it is then.
    """

    __slots__ = ("_log", "directory")

    def __init__(self, directory: Path, archive: str | None = None) -> None:
        self.directory: Final = directory
        self._log: Final = WholeLog(directory, archive)

    @property
    def schema(self) -> pa.Schema:
        """The columns: offset, timestamp, topic, payload, qos, retain, dup, client_id, and properties of MQTT 5."""
        return MESSAGES_ARROW

    def bounds(self) -> tuple[int, int]:
        """The first durable offset, and the one after the last."""
        return self._log.bounds()

    def batches(
        self,
        topic_filter: str | None = None,
        since: Instant = None,
        until: Instant = None,
        columns: Sequence[str] = tuple(MESSAGES_ARROW.names),
    ) -> Iterator[pa.RecordBatch]:
        """The messages on topics that a topic filter matches, from `since` up to, not including, `until`, in order.

        Blocks without such messages are not read. ValueError says what of the arguments was expected.
        """
        unknown = set(columns) - set(MESSAGES_ARROW.names)
        if unknown:
            raise ValueError(
                f"there is no column {', '.join(sorted(unknown))}; expected {', '.join(self.schema.names)}"
            )
        if topic_filter is not None:
            valid_filter(topic_filter)
        now_us = time.time_ns() // 1000
        wanted = _Wanted(topic_filter, _us(since, 0, now_us), _us(until, _END_US, now_us))
        return self._batches(wanted, columns)

    def _batches(self, wanted: "_Wanted", columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([MESSAGES_ARROW.field(name) for name in columns])
        needed = log_columns([*columns, "timestamp"], True, wanted.topic_filter is not None)
        for batch in self._log.chosen(wanted, needed, ReadCount()):
            kept = wanted.rows(of_kinds(batch, (Kind.PUBLISH,)))
            if kept.num_rows:
                yield pa.RecordBatch.from_arrays([*shown_columns(kept, columns)], schema=schema)

    def reader(
        self,
        topic_filter: str | None = None,
        since: Instant = None,
        until: Instant = None,
        columns: Sequence[str] = tuple(MESSAGES_ARROW.names),
    ) -> pa.RecordBatchReader:
        """As `batches`, as one Arrow stream, which pandas, Polars and DuckDB take as it is."""
        schema = pa.schema([MESSAGES_ARROW.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, self.batches(topic_filter, since, until, columns))

    def dataset(self) -> MessagesDataset:
        """All messages as a dataset of pyarrow: what queries it passes its filters on topic and timestamp down."""
        return MessagesDataset.of(self._log)


@final
class _Wanted(BlockChooser):
    """A topic filter and a span of time."""

    __slots__ = ("topic_filter", "_since_us", "_until_us")

    def __init__(self, topic_filter: str | None, since_us: int, until_us: int) -> None:
        self.topic_filter: Final = topic_filter
        self._since_us: Final = since_us
        self._until_us: Final = until_us

    def times(self, spans: Sequence[tuple[int, int]]) -> list[bool]:
        return [last >= self._since_us and first < self._until_us for first, last in spans]

    def topics(self, index: TopicIndex) -> list[int] | None:
        if self.topic_filter is None:
            return None
        found: list[int] = pc.indices_nonzero(arrow_mask(topic_names(index), self.topic_filter)).to_pylist()
        return found

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Those of the messages that are wanted."""
        times = np.asarray(batch["timestamp"].cast(pa.int64()))
        mask = (times >= self._since_us) & (times < self._until_us)
        if self.topic_filter is not None and batch.num_rows:
            mask &= arrow_mask(batch["topic"], self.topic_filter).to_numpy(zero_copy_only=False)
        return batch if mask.all() else batch.filter(pa.array(mask))


def _us(instant: Instant, absent_us: int, now_us: int) -> int:
    if instant is None:
        return absent_us
    return instant_us(instant, now_us) if isinstance(instant, str) else microseconds(instant)
