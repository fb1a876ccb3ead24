"""The messages of a log as a dataset of pyarrow, of which a query reads only the blocks that it may need.

Owns: what a filter, which pyarrow shows as an expression and nothing more, says about times and topics.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
from pyarrow import fs

from embermq.history.whole_log import WholeLog
from embermq.lake.rows import log_columns, of_kinds, shown_columns
from embermq.lake.schema import MESSAGES_ARROW
from embermq.sql.scan import Scan
from embermq.store.log.by_topic.chosen_blocks import BlockChooser, ReadCount
from embermq.store.log.by_topic.topic_index import TopicIndex
from embermq.store.rows import Kind

_TIMESTAMP: Final = MESSAGES_ARROW.field("timestamp").type
_NULL_SAFE: Final = re.compile(r"if_else\(is_valid\((\w+)\), is_in\(\1, ")
_NULL_TEST: Final = re.compile(r"\bis_(valid|null)\(|coalesce|if_else|true_unless_null")


class MessagesDataset(pads.InMemoryDataset):  # type: ignore[misc] # untyped there
    """Every accepted PUBLISH of a log. Made by `of`; each scan sees the log as it is then."""

    _log: WholeLog
    count: ReadCount

    @classmethod
    def of(cls, log: WholeLog) -> Self:
        """The messages of a log."""
        dataset = cls(MESSAGES_ARROW.empty_table())
        dataset._log = log
        dataset.count = ReadCount()
        return dataset

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **options: Any
    ) -> Scan:
        """What queries call: the messages that a filter keeps, with some columns."""
        names = list(MESSAGES_ARROW.names if columns is None else columns)
        text = str(filter)
        # An expression does not tell its columns. One whose name stands in its text is read too.
        needed = names + [name for name in MESSAGES_ARROW.names if name in text and name not in names]
        schema = pa.schema([MESSAGES_ARROW.field(name) for name in needed or ["offset"]])
        return Scan(self._batches(schema, filter), schema, names, filter)

    def _batches(self, schema: pa.Schema, filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        count = ReadCount()
        for batch in self._log.chosen(ExpressionChooser(filter), log_columns(schema.names, True, False), count):
            kept = of_kinds(batch, (Kind.PUBLISH,))
            if kept.num_rows:
                yield pa.RecordBatch.from_arrays([*shown_columns(kept, schema.names)], schema=schema)
        self.count.read_bytes += count.read_bytes
        self.count.log_bytes = count.log_bytes


@final
class ExpressionChooser(BlockChooser):
    """Chooses blocks by an expression over the columns of `messages`."""

    __slots__ = ("_filter", "_by_time", "_by_topic")

    def __init__(self, filter: pc.Expression | None) -> None:
        text = str(filter)
        self._filter: Final = filter
        self._by_time: Final = filter is not None and "timestamp" in text
        # Topics are judged with all other columns null, so a test for null would be judged wrongly.
        self._by_topic: Final = (
            filter is not None and "topic" in text and not _NULL_TEST.search(_NULL_SAFE.sub("", text))
        )

    def times(self, spans: Sequence[tuple[int, int]]) -> list[bool]:
        """pyarrow knows when a filter contradicts what is known of a file: here each span stands for one."""
        if not self._by_time:
            return [True] * len(spans)
        format, nowhere = pads.IpcFileFormat(), fs.LocalFileSystem()
        timestamp = pc.field("timestamp")
        files = [
            format.make_fragment(
                str(number),
                nowhere,
                partition_expression=(timestamp >= pa.scalar(first, _TIMESTAMP))
                & (timestamp <= pa.scalar(last, _TIMESTAMP)),
            )
            for number, (first, last) in enumerate(spans)
        ]
        known = pads.FileSystemDataset(files, MESSAGES_ARROW, format, nowhere)
        possible = {int(file.path) for file in known.get_fragments(filter=self._filter)}
        return [number in possible for number in range(len(spans))]

    def topics(self, index: TopicIndex) -> list[int] | None:
        """A filter is false for a topic, whatever the other columns are, if it is false while they are null."""
        if not self._by_topic:
            return None
        names = topic_names(index)
        unknown = {field.name: pa.nulls(len(names), field.type) for field in MESSAGES_ARROW}
        table = pa.table(unknown | {"topic": names}, schema=MESSAGES_ARROW)
        judged = pads.InMemoryDataset(table).scanner(columns={"kept": self._filter}).to_table()["kept"]
        possible: list[int] = pc.indices_nonzero(pc.fill_null(judged, True)).to_pylist()
        return possible


def topic_names(index: TopicIndex) -> pa.Array:
    """The topics of a segment, in their order in its index."""
    buffers = [None, pa.py_buffer(index.columns.topic_ends), pa.py_buffer(index.columns.topics)]
    return pa.Array.from_buffers(pa.string(), len(index), buffers, null_count=0)
