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

from embermq.history.whole_log import WholeLog
from embermq.instants import NOW, instant_us
from embermq.lake.as_of import retained_as_of
from embermq.lake.duck import add_history, open_all, open_connection, open_tables, secure, sentence_of
from embermq.lake.errors import PipelineError
from embermq.lake.lake import Lake
from embermq.lake.schema import AS_OF_FUNCTION, CLIENTS, RETAINED
from embermq.sql.dataset import MessagesDataset
from embermq.sql.events import client_events
from embermq.sql.scan import Scan
from embermq.store.log.by_topic.chosen_blocks import ReadCount

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LAKE_SCHEMA: Final = "lake"
RETAINED_ARROW: Final = RETAINED.arrow("topic", "payload", "qos", "offset", "valid_from")
"""The columns of `retained`, as in the lake."""
RetainedRow = tuple[str, bytes, int, int, int]
"""Topic, payload, QoS, offset, microseconds since 1970."""
RetainedRows = Callable[[int | None], Iterator[RetainedRow]]
"""The retained messages of now, or as of an instant in microseconds."""

_BATCH_ROWS: Final = 10_000
# What is a text, a quoted name or a comment is found first, and stays as it is.
_AS_OF: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$
    | \b(?P<lake>lake\s*\.\s*)?retained_as_of\s*\(\s*'(?P<instant>(?:[^']|'')*)'\s*\)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)


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


class NotedDataset(pads.InMemoryDataset):  # type: ignore[misc] # untyped there
    """A table that notes when a query reads it."""

    _name: str
    _table: pads.Dataset
    _read: set[str]

    @classmethod
    def of(cls, name: str, table: pads.Dataset, read: set[str]) -> Self:
        """A table that adds its name to a set."""
        dataset = cls(table.schema.empty_table())
        dataset._name, dataset._table, dataset._read = name, table, read
        return dataset

    def scanner(self, **options: Any) -> Any:
        """What queries call."""
        self._read.add(self._name)
        return self._table.scanner(**options)


@final
class SqlSession:
    """Queries over the tables of one server: of its log, and of its lake. Either may be missing."""

    __slots__ = ("_connection", "_messages", "_retained", "_lake", "_moments", "_read")

    def __init__(
        self,
        connection: "DuckDBPyConnection",
        log_directory: Path | None,
        retained: RetainedRows,
        lake: Lake | None,
        archive: str | None = None,
    ) -> None:
        self._connection: Final = connection
        self._retained: Final = None if log_directory is None else retained
        self._lake: Final = lake if lake is not None and lake.exists() else None
        self._moments: Final[set[str]] = set()
        self._read: Final[set[str]] = set()
        self._messages: MessagesDataset | None = None
        if log_directory is not None:
            self._messages = MessagesDataset.of(WholeLog(log_directory, archive))  # says if it is none
            self._register("messages", self._messages)
            self._register("retained", RowsDataset.of(RETAINED_ARROW, lambda: _batches(retained(None))))
            self._register("clients", RowsDataset.of(CLIENTS.arrow(), lambda: client_events(log_directory)))
        if self._lake is not None:
            self._add_lake(self._lake)
        secure(connection)

    def _register(self, name: str, table: pads.Dataset) -> None:
        self._connection.register(name, NotedDataset.of(name, table, self._read))

    @property
    def count(self) -> ReadCount:
        """How much of the log the queries have read."""
        return ReadCount() if self._messages is None else self._messages.count

    def take_tables_read(self) -> list[str]:
        """The names of the tables that queries have read since this was asked last, those of the lake with `lake.`."""
        read = sorted(self._read)
        self._read.clear()
        return read

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
            if found["instant"] is None:
                return found[0]
            text = found["instant"].replace("''", "'")
            is_of_lake = found["lake"] is not None or self._retained is None
            name = f"{f'{LAKE_SCHEMA}.' if is_of_lake else ''}{AS_OF_FUNCTION}({text})"
            if name not in self._moments:
                self._register(name, self._as_of_in_lake(text) if is_of_lake else self._as_of(text))
                self._moments.add(name)
            quoted = name.replace('"', '""')
            return f'"{quoted}"'

        return _AS_OF.sub(table, sql)

    def _as_of(self, text: str) -> RowsDataset:
        """The retained messages as of an instant, from the server."""
        retained = self._retained
        if retained is None:
            raise PipelineError(f"{AS_OF_FUNCTION}: there is neither a log nor a lake: name one with --data or --lake")
        try:
            moment_us = instant_us(text)
        except ValueError as error:
            raise PipelineError(f"{AS_OF_FUNCTION}: {error}") from None
        return RowsDataset.of(RETAINED_ARROW, lambda: _batches(retained(moment_us)))

    def _as_of_in_lake(self, text: str) -> RowsDataset:
        """The same from the tables of the lake; "now" is the last instant that is known there."""
        lake = self._lake
        if lake is None:
            raise PipelineError(f"{AS_OF_FUNCTION}: there is no lake: create one with `ember pipeline run`")
        is_now = text.strip() == NOW
        try:
            moment_us = instant_us(text)
        except ValueError as error:
            raise PipelineError(f"{AS_OF_FUNCTION}: {error}") from None
        with open_tables(lake) as tables:
            found = retained_as_of(tables, tables.retained_known().until_us if is_now else moment_us)
        rows = found.cast(RETAINED.arrow())
        return RowsDataset.of(rows.schema, lambda: iter(rows.to_batches()))

    def _add_lake(self, lake: Lake) -> None:
        self._connection.execute(f"create schema {LAKE_SCHEMA}")
        tables = open_all(lake)
        for name, table in tables.items():
            quoted = name.replace('"', '""')
            self._register(f"{LAKE_SCHEMA}.{name}", table.to_pyarrow_dataset())
            self._connection.execute(f'create view {LAKE_SCHEMA}."{quoted}" as select * from "{LAKE_SCHEMA}.{quoted}"')
        add_history(self._connection, tables, LAKE_SCHEMA)
        self._connection.execute(f"set search_path = 'main,{LAKE_SCHEMA}'")


@contextmanager
def open_session(
    log_directory: Path | None,
    retained: RetainedRows,
    lake: Lake | None = None,
    archive: str | None = None,
    memory: str | None = None,
) -> Iterator[SqlSession]:
    """The tables of one server for queries; closed at the end. `archive` is the address of its archive.

    With `memory`, such as 512MB, a query that needs more fails.
    """
    with open_connection(memory) as connection:
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
