"""The log as a table of DuckDB, with the columns that the source has in Spark."""

from pathlib import Path

import pyarrow as pa

from embermq.history.directory import DirectoryLog
from embermq.lake.rows import rows
from embermq.lake.schema import LOG


def log_rows(data: Path) -> pa.RecordBatchReader:
    """All records of the log in a data directory."""
    log, columns = DirectoryLog(data), LOG.arrow(*(name for name in LOG.names if name != "flags"))
    return pa.RecordBatchReader.from_batches(columns, rows(log, columns, *log.bounds()))
