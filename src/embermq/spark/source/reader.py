"""Reading the log into Spark, once, as a batch.

Owns: which task reads which offsets. `stream_reader` shares that.
Never: state in `read`. The same range gives the same rows, in any process, at any time.
"""

import gc
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from embermq.history.opening import open_log
from embermq.history.source import ReadableLog
from embermq.lake.rows import rows
from embermq.lake.schema import LOG_ARROW
from embermq.spark.errors import bad_option
from embermq.spark.options import EARLIEST, SourceOptions
from embermq.spark.source.columns import SOURCE_SCHEMA, source_schema
from embermq.store.log.errors import LogLost, LogTrimmed
from embermq.store.log.identity import goes_on_at

PARTITION_ROWS_MIN: Final = 20_000
"""A task for fewer rows costs more than it saves."""
PARTITION_ROWS_MAX: Final = 1_000_000


class OffsetRange(InputPartition):
    """The records that one task reads: from `start` up to, not including, `end`."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


class EmberReader(DataSourceReader):
    """One read of a range that is fixed when the query is planned."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        log = open_log(self.options.location)
        first, end = log.bounds()
        start = starting_offset(self.options, log)
        if start < first:
            if self.options.fail_on_data_loss:
                raise LogTrimmed(start, first)
            report_gap(start, first)
            start = first
        start = behind_lost(log, start, self.options.fail_on_data_loss)
        if isinstance(self.options.ending, int):
            if self.options.ending > end:
                raise bad_option("endingOffsets", self.options.ending, f"at most {end}, where the log ends now")
            end = self.options.ending
        return split(log.ranges(start, end), self.options.min_partitions) or [OffsetRange(start, start)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetRange)
        prepare_worker()
        return source_rows(self.options, self.columns, partition)


def source_rows(options: SourceOptions, columns: pa.Schema, part: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The rows that one task reads."""
    log, start = open_log(options.location), part.start
    if not options.fail_on_data_loss:
        start = min(part.end, max(start, log.bounds()[0]))
    return rows(log, columns, start, part.end, options.kinds, options.topic_filter)


@cache
def prepare_worker() -> None:
    """Once in a worker process: Spark collects garbage after every task, and imported modules are none."""
    gc.freeze()
    main = sys.modules["__main__"].__spec__
    if main is not None and main.name == "pyspark.daemon":
        traceback.print_exc = _print_unless_closed(traceback.print_exc)


def _print_unless_closed(print_exc: Callable[..., None]) -> Callable[..., None]:
    """`traceback.print_exc`, silent if Java has closed its connection to this worker.

    It does so as soon as it has enough rows, as for `show()`. PySpark's daemon prints that as an error of its own, in
    each worker, though the worker ends as it should. What a reader raises is sent to Java before and not printed here.
    """

    def print_or_not(*arguments: Any, **options: Any) -> None:
        error = sys.exc_info()[1]
        at = traceback.extract_tb(error.__traceback__)[-1] if error is not None and error.__traceback__ else None
        is_daemons = at is not None and at.name == "worker" and os.path.basename(at.filename) == "daemon.py"
        if not (is_daemons and isinstance(error, (BrokenPipeError, ConnectionResetError))):
            print_exc(*arguments, **options)

    return print_or_not


def wanted_columns(schema: StructType, options: SourceOptions) -> pa.Schema:
    """The columns that a reader must give, in their order."""
    known = {field.name: field for field in source_schema(options.kinds, LOG_ARROW.names).fields}
    for field in schema.fields:
        if field.name not in known or known[field.name].dataType != field.dataType:
            raise bad_option("schema", field.simpleString(), f"columns of {SOURCE_SCHEMA.simpleString()}")
        if known[field.name].nullable and not field.nullable:
            raise bad_option("schema", f"{field.name} NOT NULL", "a nullable column: not all records have one")
    return pa.schema([LOG_ARROW.field(field.name).with_nullable(field.nullable) for field in schema.fields])


def starting_offset(options: SourceOptions, log: ReadableLog) -> int:
    """Where a read without a checkpoint begins."""
    first, end = log.bounds()
    if options.starting_timestamp_us is not None:
        return log.offset_at(options.starting_timestamp_us)
    if isinstance(options.starting, int):
        if options.starting > end:
            raise bad_option("startingOffsets", options.starting, f"at most {end}, where the log ends now")
        return options.starting
    return first if options.starting == EARLIEST else end


def split(ranges: Sequence[tuple[int, int]], min_partitions: int) -> list[OffsetRange]:
    """Ranges cut into even pieces; nothing when they are empty."""
    parts: list[OffsetRange] = []
    for start, end in ranges:
        count = end - start
        if count > 0:
            pieces = max(-(-count // PARTITION_ROWS_MAX), min(min_partitions, -(-count // PARTITION_ROWS_MIN)))
            edges = [start + count * piece // pieces for piece in range(pieces + 1)]
            parts += [OffsetRange(edges[piece], edges[piece + 1]) for piece in range(pieces)]
    return parts


def behind_lost(log: ReadableLog, start: int, fail_on_data_loss: bool) -> int:
    """Where a read goes on that has come to an offset; LogLost if it has read records that were lost since."""
    try:
        return goes_on_at(log.lost(), start)
    except LogLost as error:
        if fail_on_data_loss:
            raise
        report_gap(start, error.first_available)
        return error.first_available


def report_gap(start: int, first: int) -> None:
    """Log what a reader has skipped because it was trimmed."""
    logging.getLogger(__name__).warning(
        "the log no longer has offsets %d to %d: %d records skipped", start, first - 1, first - start
    )
