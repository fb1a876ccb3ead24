"""The log as a table of DuckDB, with the columns that the source has in Spark."""

from pathlib import Path

import pyarrow as pa

from embermq.spark.options import parse_source_options
from embermq.spark.source.arrow_columns import SOURCE_ARROW
from embermq.spark.source.rows import rows
from embermq.store.log.reader import LogReader


def log_rows(data: Path) -> pa.RecordBatchReader:
    """All records of the log in a data directory."""
    first, end = LogReader(data / "log").bounds()
    columns = SOURCE_ARROW.remove(SOURCE_ARROW.get_field_index("flags"))
    options = parse_source_options({"path": str(data)})
    return pa.RecordBatchReader.from_batches(columns, rows(options, columns, first, end))
