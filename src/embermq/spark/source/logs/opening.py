"""Opening the log at a location."""

from pathlib import Path

from embermq.spark.source.logs.directory import DirectoryLog
from embermq.spark.source.logs.location import LogLocation
from embermq.spark.source.logs.readable import ReadableLog


def open_log(location: LogLocation) -> ReadableLog:
    """The log at a location; a LogError if there is none."""
    assert location.directory is not None
    return DirectoryLog(Path(location.directory))
