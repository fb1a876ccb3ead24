"""Opening the log at a location."""

from pathlib import Path

from embermq.archive.manifest import SEGMENTS
from embermq.lake.errors import is_url
from embermq.lake.logs.archived import ArchivedLog, opened_archive
from embermq.lake.logs.directory import DirectoryLog
from embermq.lake.logs.joined import JoinedLog
from embermq.lake.logs.location import LogLocation
from embermq.lake.logs.readable import ReadableLog
from embermq.lake.logs.server import ServerLog


def open_log(location: LogLocation) -> ReadableLog:
    """The log at a location; a sentence as an error if there is none."""
    if location.path is None:
        return ServerLog(location)
    if location.server is not None:
        return JoinedLog(ArchivedLog(opened_archive(location.path)), ServerLog(location))
    if is_url(location.path) or (Path(location.path) / SEGMENTS).is_dir():
        return ArchivedLog(opened_archive(location.path))
    return DirectoryLog(Path(location.path))
