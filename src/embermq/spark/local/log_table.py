"""The log as a table of DuckDB, with the columns that the source has in Spark."""

from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from embermq.spark.errors import SparkMissing
from embermq.store.log.reader import LogReader


def log_rows(data: Path) -> pa.RecordBatchReader:
    """All records of the log in a data directory."""
    if find_spec("pyspark") is None:
        raise SparkMissing("the columns of the log need the extra `spark`: pip install 'embermq[spark]'")
    from embermq.spark.options import parse_source_options
    from embermq.spark.source.columns import SOURCE_ARROW, SOURCE_SCHEMA
    from embermq.spark.source.rows import rows

    first, end = LogReader(data / "log").bounds()
    columns = pa.schema([SOURCE_ARROW.field(name) for name in SOURCE_SCHEMA.names])
    options = parse_source_options({"path": str(data)})
    return pa.RecordBatchReader.from_batches(columns, rows(options, columns, first, end))
