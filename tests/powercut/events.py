"""What a recorded process did: its changes of files, its syncs, and what passed over its sockets, in one order.

Owns: reading what `recorder.c` has written.
"""

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

HEADER = Struct("<IIQqQ")


class Happened(IntEnum):
    """The numbers are those of `recorder.c`."""

    WRITE = 1
    TRUNCATE = 2
    SYNC_BEGINS = 3
    SYNC_DONE = 4
    CREATE = 5
    MKDIR = 6
    RENAME = 7
    UNLINK = 8
    SEND = 9
    RECEIVE = 10
    ACCEPT = 11
    UNSUPPORTED = 12


class Event(NamedTuple):
    kind: int
    inode: int
    position: int
    path: str
    data: bytes


def read_events(path: Path) -> Iterator[Event]:
    """All that is whole: a process that is killed may have written half of the last."""
    content = path.read_bytes()
    at = 0
    while at + HEADER.size <= len(content):
        kind, path_bytes, inode, position, data_bytes = HEADER.unpack_from(content, at)
        middle = at + HEADER.size + path_bytes
        at = middle + data_bytes
        if at > len(content):
            return
        yield Event(kind, inode, position, content[middle - path_bytes : middle].decode(), content[middle:at])
