"""Opening the log at a location."""

from pathlib import Path

from embermq.archive.manifest import SEGMENTS
from embermq.history.archived import ArchivedLog, opened_archive
from embermq.history.directory import DirectoryLog
from embermq.history.joined_server import JoinedLog
from embermq.history.location import LogLocation, is_url
from embermq.history.server import ServerLog
from embermq.history.source import ReadableLog


def open_log(location: LogLocation) -> ReadableLog:
    """The log at a location; a sentence as an error if there is none."""
    if location.path is None:
        return ServerLog(location)
    if location.server is not None:
        return JoinedLog(ArchivedLog(opened_archive(location.path)), ServerLog(location))
    if is_url(location.path) or (Path(location.path) / SEGMENTS).is_dir():
        return ArchivedLog(opened_archive(location.path))
    return DirectoryLog(Path(location.path))
