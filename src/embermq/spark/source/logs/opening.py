"""Opening the log at a location."""

from pathlib import Path

from embermq.archive.manifest import SEGMENTS
from embermq.spark.errors import is_url
from embermq.spark.source.logs.archived import ArchivedLog, opened_archive
from embermq.spark.source.logs.directory import DirectoryLog
from embermq.spark.source.logs.joined import JoinedLog
from embermq.spark.source.logs.location import LogLocation
from embermq.spark.source.logs.readable import ReadableLog
from embermq.spark.source.logs.server import ServerLog


def open_log(location: LogLocation) -> ReadableLog:
    """The log at a location; a sentence as an error if there is none."""
    if location.path is None:
        return ServerLog(location)
    if location.server is not None:
        return JoinedLog(ArchivedLog(opened_archive(location.path)), ServerLog(location))
    if is_url(location.path) or (Path(location.path) / SEGMENTS).is_dir():
        return ArchivedLog(opened_archive(location.path))
    return DirectoryLog(Path(location.path))
