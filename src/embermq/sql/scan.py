"""One scan of a table that is made while it is read.

pyarrow's own scanner reads ahead on threads of its own, which may outlive a query that fails, and then the program.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, final

import pyarrow as pa
import pyarrow.compute as pc


@final
class Scan:
    """What `Dataset.scanner` returns, as far as queries use it. It can be read once."""

    __slots__ = ("projected_schema", "_batches", "_filter")

    def __init__(
        self, batches: Iterator[pa.RecordBatch], schema: pa.Schema, columns: Sequence[str], filter: pc.Expression | None
    ) -> None:
        self.projected_schema: Final = pa.schema([schema.field(name) for name in columns])
        self._batches: Final = batches
        self._filter: Final = filter

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows that the filter keeps, as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The same, batch by batch."""
        names = self.projected_schema.names
        for batch in self._batches:
            table = pa.Table.from_batches([batch])
            if self._filter is not None:
                table = table.filter(self._filter)
            if table.num_rows:
                yield from table.select(names).to_batches()

    def to_table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(list(self.to_batches()), self.projected_schema)

    def count_rows(self) -> int:
        """How many rows the filter keeps."""
        return sum(batch.num_rows for batch in self.to_batches())

    def head(self, rows: int) -> pa.Table:
        """The first rows."""
        few = pa.Table.from_batches(list(islice(self.to_batches(), rows)), self.projected_schema)
        return few.slice(0, rows)
