"""DuckDB with the history of one server as tables: `ember sql`.

Owns: the tables' names, and what a query may see. Tables are read when a query names them, as they are then.
Never: the network or files: DuckDB may read and write nothing but what is registered here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

import pyarrow as pa
import pyarrow.dataset as pads

from embermq.instants import instant_us
from embermq.spark.errors import PipelineError
from embermq.spark.lake.lake import Lake
from embermq.spark.local.tables import open_connection, open_table, secure, sentence_of
from embermq.sql.dataset import MessagesDataset
from embermq.sql.events import CLIENTS_ARROW, client_events
from embermq.sql.scan import Scan
from embermq.sql.whole_log import WholeLog
from embermq.store.log.by_topic.chosen_blocks import ReadCount

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LAKE_SCHEMA: Final = "lake"
RETAINED_ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int8()),
        ("offset", pa.int64()),
        ("valid_from", pa.timestamp("us", "UTC")),
    ]
)
"""The columns of `retained`, as in the lake."""
RetainedRow = tuple[str, bytes, int, int, int]
"""Topic, payload, QoS, offset, microseconds since 1970."""
RetainedRows = Callable[[int | None], Iterator[RetainedRow]]
"""The retained messages of now, or as of an instant in microseconds."""

_BATCH_ROWS: Final = 10_000
_AS_OF: Final = re.compile(r"\bretained_as_of\s*\(\s*'((?:[^']|'')*)'\s*\)", re.IGNORECASE)


class RowsDataset(pads.InMemoryDataset):  # type: ignore[misc] # untyped there
    """A table whose rows are made when a query reads it."""

    _made: Callable[[], Iterator[pa.RecordBatch]]

    @classmethod
    def of(cls, schema: pa.Schema, made: Callable[[], Iterator[pa.RecordBatch]]) -> Self:
        """The table with these columns, which `made` reads."""
        dataset = cls(schema.empty_table())
        dataset._made = made
        return dataset

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> Scan:
        """What queries call."""
        return Scan(self._made(), self.schema, self.schema.names if columns is None else columns, filter)


@final
class SqlSession:
    """Queries over the tables of one server."""

    __slots__ = ("_connection", "_messages", "_retained", "_moments")

    def __init__(
        self,
        connection: "DuckDBPyConnection",
        log_directory: Path,
        retained: RetainedRows,
        lake: Lake | None,
        archive: str | None = None,
    ) -> None:
        log = WholeLog(log_directory, archive)  # says if it is none
        self._connection: Final = connection
        self._retained: Final = retained
        self._moments: Final[dict[int, str]] = {}
        self._messages: Final = MessagesDataset.of(log)
        connection.register("messages", self._messages)
        connection.register("retained", RowsDataset.of(RETAINED_ARROW, lambda: _batches(retained(None))))
        connection.register("clients", RowsDataset.of(CLIENTS_ARROW, lambda: client_events(log_directory)))
        if lake is not None and lake.exists():
            self._add_lake(lake)
        secure(connection)

    @property
    def count(self) -> ReadCount:
        """How much of the log the queries have read."""
        return self._messages.count

    def tables(self) -> list[str]:
        """The names of the tables, those of the lake with `lake.` before them."""
        found = self._connection.execute(
            "select schema_name, view_name from duckdb_views() where not internal and view_name not like '%.%'"
        ).fetchall()
        return sorted(f"{schema}.{name}" if schema == LAKE_SCHEMA else name for schema, name in found)

    def query(self, sql: str) -> pa.RecordBatchReader:
        """The rows of a query. PipelineError has the reason if it fails, also while rows are read."""
        return self._run(self._with_moments(sql))

    def rows(self, sql: str) -> tuple[list[str], Iterator[list[Any]]]:
        """The names of the columns, and the rows as Python values, as they come."""
        found = self.query(sql)
        return list(found.schema.names), self._rows(found)

    def batches(self, found: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """The rows of a query as they come. PipelineError has the reason if it fails on the way."""
        import duckdb

        try:
            yield from found
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise PipelineError(sentence_of(str(error))) from None

    def _rows(self, found: pa.RecordBatchReader) -> Iterator[list[Any]]:
        for batch in self.batches(found):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield list(row)

    def _run(self, sql: str) -> pa.RecordBatchReader:
        import duckdb

        try:
            relation = self._connection.sql(sql)
            if relation is None:  # a statement without rows
                return pa.RecordBatchReader.from_batches(pa.schema([]), [])
            return relation.to_arrow_reader(_BATCH_ROWS)
        except duckdb.Error as error:
            raise PipelineError(sentence_of(str(error))) from None

    def _with_moments(self, sql: str) -> str:
        """`retained_as_of('...')` as the name of a table, which is registered here."""

        def table(found: re.Match[str]) -> str:
            text = found[1].replace("''", "'")
            try:
                moment_us = instant_us(text)
            except ValueError as error:
                raise PipelineError(f"retained_as_of: {error}") from None
            if moment_us not in self._moments:
                name = f"retained_as_of.{moment_us}"
                rows = RowsDataset.of(RETAINED_ARROW, lambda: _batches(self._retained(moment_us)))
                self._connection.register(name, rows)
                self._moments[moment_us] = name
            return f'"{self._moments[moment_us]}"'

        return _AS_OF.sub(table, sql)

    def _add_lake(self, lake: Lake) -> None:
        self._connection.execute(f"create schema {LAKE_SCHEMA}")
        for name in sorted(lake.table_names()):
            quoted = name.replace('"', '""')
            self._connection.register(f"{LAKE_SCHEMA}.{name}", open_table(lake, name).to_pyarrow_dataset())
            self._connection.execute(f'create view {LAKE_SCHEMA}."{quoted}" as select * from "{LAKE_SCHEMA}.{quoted}"')
        self._connection.execute(f"set search_path = 'main,{LAKE_SCHEMA}'")


@contextmanager
def open_session(
    log_directory: Path, retained: RetainedRows, lake: Lake | None = None, archive: str | None = None
) -> Iterator[SqlSession]:
    """The tables of one server for queries; closed at the end. `archive` is the address of its archive."""
    with open_connection() as connection:
        yield SqlSession(connection, log_directory, retained, lake, archive)


def _batches(rows: Iterator[RetainedRow]) -> Iterator[pa.RecordBatch]:
    gathered: list[RetainedRow] = []
    for row in rows:
        gathered.append(row)
        if len(gathered) >= _BATCH_ROWS:
            yield _batch(gathered)
            gathered.clear()
    if gathered:
        yield _batch(gathered)


def _batch(rows: list[RetainedRow]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RETAINED_ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RETAINED_ARROW)
