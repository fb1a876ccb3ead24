"""Rejects of a typed table, read again with the settings of now: those that fit go to the table.

Owns: which rejects fit, and that each is in one of the two tables. The rows are appended before they leave the rejects,
and a payload whose rows are in the table already is not appended again: a crash in between changes nothing.
Never: a batch of the log; the lake is locked meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from embermq.lake.delta import data_files, open_table
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.made_from import is_made_from
from embermq.lake.payloads.reader import PayloadReader, payload_reader
from embermq.lake.schema import TYPED_KEYS
from embermq.lake.typed_tables import TypedTable

LOCK_WAIT_S: Final = 2.0
_CODEC: Final = "ZSTD"
_BATCH_ROWS: Final = 10_000


Offsets = npt.NDArray[np.int64]


class Retried(NamedTuple):
    """How many rejects fit now, and how many do not."""

    fitting: int
    left: int


def retry(lake: Lake, table: TypedTable) -> Retried:
    """Bring the rejects that fit into the table. LakeError if that cannot be done."""
    _check(lake, table)
    reader = payload_reader(table)
    with lake.lock(LOCK_WAIT_S):
        _check_columns(lake, table)
        rejected = _offsets(lake, table.rejects().name)
        present = np.intersect1d(_offsets(lake, table.name), rejected)
        fitting: list[int] = []
        name, columns = table.rejects().name, table.rejects().names
        added = _fitting_rows(_batches(lake, name, columns), table, reader, fitting, present)
        schema = _stored_schema(lake, table.name)
        first = next(added, None)
        if first is not None:
            _write(lake, table.name, schema, _with(first, added), "append")
        if fitting:
            rest = _rest(_batches(lake, name, columns), np.array(fitting))
            _write(lake, name, _stored_schema(lake, name), rest, "overwrite")
    return Retried(len(fitting), len(rejected) - len(fitting))


def typed_rows(table: TypedTable, reader: PayloadReader, messages: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows of messages that fit, and for each message whether it does."""
    read = reader.read_array(messages["payload"])
    fits = pc.is_null(read.field("reason"))
    parsed = read.field("parsed")
    if reader.has_many_rows:
        rows_of = pc.list_parent_indices(parsed)
        values = parsed.flatten()
    else:
        rows_of = pc.indices_nonzero(fits)
        values = parsed.filter(fits)
    own = messages.take(rows_of)
    topics = [topic.split("/") for topic in own["topic"].to_pylist()]
    columns = [own[column.name] for column in TYPED_KEYS]
    for number, name in enumerate(table.levels):
        if name:
            columns.append(
                pa.array([levels[number] if number < len(levels) else None for levels in topics], pa.string())
            )
    columns += values.flatten()
    return pa.RecordBatch.from_arrays(columns, schema=table.table().arrow()), fits


def _check(lake: Lake, table: TypedTable) -> None:
    rebuild = f"`ember pipeline run --rebuild {table.name}` reads all payloads again, as far as the log reaches"
    if not lake.is_local:
        raise LakeError(f"{lake.place}: rejects of a lake at a URL are not retried: {rebuild}")
    if table.format == "sparkplug":
        raise LakeError(f"the table {table.name}: what an alias means depends on the messages before it: {rebuild}")
    for name in (table.name, table.rejects().name):
        if not lake.has_table(name):
            raise LakeError(f"there is no table {name} in {lake.place}: `ember pipeline run` makes it")


def _check_columns(lake: Lake, table: TypedTable) -> None:
    """LakeError if the pipeline has not brought the table to the settings."""
    table.check(lake)
    if not is_made_from(lake, table.name, table.definition()):
        raise LakeError(
            f"the table {table.name} in {lake.place} does not have the columns of the settings yet: "
            "`ember pipeline run --once` brings it up to date"
        )


def _stored_schema(lake: Lake, name: str) -> pa.Schema:
    return pa.schema(open_table(lake, name).schema().to_arrow())


def _offsets(lake: Lake, name: str) -> Offsets:
    found = [np.asarray(batch["offset"]) for batch in _batches(lake, name, ["offset"])]
    return np.concatenate([np.empty(0, np.int64), *found])


def _batches(lake: Lake, name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a table. Its files are read with Arrow: delta-rs cannot read one table while it writes from it."""
    files = data_files(lake, name)
    schema = pa.schema([_stored_schema(lake, name).field(column) for column in columns])
    found = dataset.dataset(files, schema=schema, format="parquet").to_batches(batch_size=_BATCH_ROWS) if files else ()
    return iter(found)


def _fitting_rows(
    rejects: Iterator[pa.RecordBatch], table: TypedTable, reader: PayloadReader, fitting: list[int], present: Offsets
) -> Iterator[pa.RecordBatch]:
    """The rows to append; the offsets of all rejects that fit go into `fitting`."""
    for batch in rejects:
        rows, fits = typed_rows(table, reader, batch)
        fitting += batch["offset"].filter(fits).to_pylist()
        new = rows.filter(pa.array(~np.isin(np.asarray(rows["offset"]), present)))
        if new.num_rows:
            yield new


def _rest(rejects: Iterator[pa.RecordBatch], gone: Offsets) -> Iterator[pa.RecordBatch]:
    """The rejects that stay."""
    for batch in rejects:
        yield batch.filter(pa.array(~np.isin(np.asarray(batch["offset"]), gone)))


def _with(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _write(
    lake: Lake, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], mode: Literal["append", "overwrite"]
) -> None:
    from deltalake import WriterProperties, write_deltalake

    columns = (batch.select(schema.names).cast(schema) for batch in batches)
    reader = pa.RecordBatchReader.from_batches(schema, columns)
    write_deltalake(open_table(lake, name), reader, mode=mode, writer_properties=WriterProperties(compression=_CODEC))
