"""A lake's tables in DuckDB, each by its name, as they were when the lake was opened.

Owns: the function `mqtt_matches`, one sentence for DuckDB's errors, and that a query sees nothing but tables that were
registered (`secure`), here and in `ember sql`.
Never: writing to a table. Importing this module imports neither DuckDB nor Spark, so that a command can say what is
missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from embermq.instants import EPOCH
from embermq.lake.damage import check_tables
from embermq.lake.delta import open_table
from embermq.lake.epochs import NOTHING_APPLIED, epoch_and_offset
from embermq.lake.errors import LakeError, NotKnown, PipelineError, SqlMissing, what_is_missing
from embermq.lake.history import DUCKDB, Part, applied_sql, history_sql
from embermq.lake.known import Known, RowInstants, recorded
from embermq.lake.lake import Lake
from embermq.lake.schema import HISTORY_VIEW
from embermq.lake.topic_masks import MATCHES_FUNCTION, arrow_mask, valid_filter

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection

RETAINED_JOB_NAME: Final = "retained"

_SETTINGS: Final = {
    # Names in a query are tables of the lake, never variables of this program; nothing is fetched from the network.
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
}
_SECURED: Final = ("set enable_external_access = false", "set lock_configuration = true")


@final
class LocalTables:
    """Every table of a lake at one version each, for queries in SQL."""

    __slots__ = ("lake", "names", "_connection", "_recorded", "_versions", "_through")

    def __init__(self, lake: Lake, connection: "DuckDBPyConnection") -> None:
        self.lake: Final = lake
        self._connection: Final = connection
        self._recorded: Final = recorded(lake)  # before the tables are opened, which may be further then
        tables = open_all(lake)
        self.names: Final = tuple(tables)
        self._versions: Final = {name: table.version() for name, table in tables.items()}
        for name, table in tables.items():
            connection.register(name, table.to_pyarrow_dataset())
        self._through: Final = add_history(connection, tables)
        secure(connection)

    def retained_known(self) -> Known:
        """Between which instants the retained set is known. NotKnown if the lake has read nothing yet."""
        if not {"retained", "retained_closed"} <= {*self.names}:
            raise NotKnown(f"{self.lake.place} has no tables of retained messages yet")
        found = self._recorded.known(RETAINED_JOB_NAME, self._versions, self._through, self._rows_us)
        if found is None:
            raise NotKnown(f"{self.lake.place} has read nothing of the log yet")
        return found

    def _rows_us(self) -> RowInstants:
        newest = "greatest(max(valid_from), max(valid_to))"
        (row,) = self.rows(
            f"select epoch_us(min(valid_from)) as oldest, epoch_us({newest}) as newest from {HISTORY_VIEW}"
        )
        return row["oldest"], row["newest"]

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """All rows of a query; instants are in UTC."""
        return self.batch(sql, parameters).to_pylist()  # type: ignore[no-any-return] # untyped there

    def batch(self, sql: str, parameters: Sequence[object] = (), limit: int | None = None) -> pa.Table:
        """The rows of a query, or the first of them. PipelineError has the reason if it fails."""
        import duckdb

        try:
            found = self._connection.sql(sql, params=list(parameters) or None)
            if found is None:  # a statement without rows, such as SET
                return pa.table({})
            if limit is None:
                return found.to_arrow_table()
            return _first(found.to_arrow_reader(max(1, min(limit, 10_000))), limit)
        except duckdb.Error as error:
            raise PipelineError(sentence_of(str(error))) from None

    def add(self, name: str, rows: pa.RecordBatchReader) -> None:
        """Give queries a further table, which is read completely now."""
        self._connection.register("_added", rows)
        self._connection.execute(f'create table "{name}" as select * from _added')
        self._connection.unregister("_added")


def add_history(connection: "DuckDBPyConnection", tables: "Mapping[str, DeltaTable]", schema: str = "main") -> int:
    """Create the view of all retained messages over tables of a schema; the last offset that it has applied."""
    if not {"retained", "retained_closed"} <= tables.keys():
        return NOTHING_APPLIED
    through = epoch_and_offset(tables["retained"].transaction_version(RETAINED_JOB_NAME))[1]
    closed, current = (
        Part(f"{schema}.{name} c", [field.name for field in tables[name].schema().fields])
        for name in ("retained_closed", "retained")
    )
    history = history_sql(DUCKDB, closed, current, applied_sql(through))
    connection.execute(f"create view {schema}.{HISTORY_VIEW} as {history}")
    return through


@contextmanager
def open_tables(lake: Lake) -> Iterator[LocalTables]:
    """The tables of a lake for queries. PipelineError says what is missing or cannot be read."""
    with open_connection() as connection:
        if not lake.exists():
            raise LakeError(f"{lake.place} is no lake: `ember pipeline run` makes one")
        if lake.is_local:
            check_tables(lake)
        yield LocalTables(lake, connection)


@contextmanager
def open_connection(memory: str | None = None) -> "Iterator[DuckDBPyConnection]":
    """DuckDB with UTC and `mqtt_matches`, in memory: in so much of it, if that is given, and without temporary files.

    PipelineError says what is missing.
    """
    missing = what_is_missing()
    if missing is not None:
        raise SqlMissing(missing)
    import duckdb
    from duckdb.func import PythonUDFType

    bounds = {} if memory is None else {"memory_limit": memory, "temp_directory": ""}
    try:
        connection = duckdb.connect(config={**_SETTINGS, **bounds})
    except duckdb.Error as error:
        raise PipelineError(sentence_of(str(error))) from None
    try:
        connection.execute("set TimeZone = 'UTC'")
        connection.create_function(
            MATCHES_FUNCTION, _matches, ["varchar", "varchar"], "boolean", type=PythonUDFType.ARROW
        )
        yield connection
    finally:
        connection.close()


def secure(connection: "DuckDBPyConnection") -> None:
    """From now on queries read and write neither files nor the network. Tables can still be registered."""
    for statement in _SECURED:
        connection.execute(statement)


def open_all(lake: Lake) -> "dict[str, DeltaTable]":
    """Every table. `retained_closed` comes after `retained`: the view leaves out what a batch adds in between."""
    return {name: open_table(lake, name) for name in sorted(lake.table_names())}


def _first(reader: pa.RecordBatchReader, limit: int) -> pa.Table:
    batches, count = [], 0
    for batch in reader:
        batches.append(batch)
        count += batch.num_rows
        if count >= limit:
            break
    return pa.Table.from_batches(batches, reader.schema)[:limit]


def _matches(topic_filters: pa.ChunkedArray, names: pa.ChunkedArray) -> pa.ChunkedArray:
    """`mqtt_matches`: nearly always one filter for all rows."""
    found: pa.ChunkedArray | None = None
    for topic_filter in pc.unique(topic_filters).to_pylist():
        mask = arrow_mask(names, valid_filter(topic_filter))
        if found is None and len(topic_filters) and pc.all(pc.equal(topic_filters, topic_filter)).as_py():
            return mask
        mask = pc.and_(mask, pc.equal(topic_filters, topic_filter))
        found = mask if found is None else pc.or_(found, mask)
    return pa.chunked_array([], pa.bool_()) if found is None else found


def sentence_of(error: str) -> str:
    """The useful part of DuckDB's text, with advice for what people stumble over."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    first = lines[0].removeprefix("Invalid Input Error: ")
    position = next((line for line in lines[1:] if line.startswith("LINE ")), "")
    if "ValueError: " in error:
        return error.partition("ValueError: ")[2].splitlines()[0]
    if "Parser Error" in first and "offset" in error.lower():
        return f'{first} ({position}): "offset" is a keyword of DuckDB, write the column with double quotes'
    more = " ".join(line for line in lines[1:] if not line.startswith(("LINE ", "^")))
    return f"{first} {more}".strip()


def instant(microseconds: int) -> str:
    """An instant as DuckDB reads it."""
    from datetime import timedelta

    return (EPOCH + timedelta(microseconds=microseconds)).isoformat()
