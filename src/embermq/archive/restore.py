"""Restoring a log from its archive, on a machine that has nothing of it.

Owns: what a new data directory gets, and the offset at which the log goes on.
Never: writing to the archive; the restored server claims its generation there when it uploads.
"""

from pathlib import Path

from embermq.archive.address import parse_address
from embermq.archive.archive import Archive, archived_log
from embermq.archive.errors import ArchiveError
from embermq.archive.objects import Objects
from embermq.store.log.segments import first_offsets


def refuse_new_log(directory: Path, address: str) -> None:
    """Refuse to begin a new log where an archive has one that can be restored: ArchiveError says what to do."""
    if directory.is_dir() and first_offsets(directory):
        return
    objects = Objects(parse_address(address))
    log_id = archived_log(objects)
    if log_id is None:
        return
    end = Archive(objects, log_id).bounds()[1]
    raise ArchiveError(
        f"{directory.parent} has no log, and the archive {objects.shown} has one up to offset {end - 1}: go on with it"
        f" by `ember log restore --from {address} --data {directory.parent}`, or name another prefix in store.archive"
    )
