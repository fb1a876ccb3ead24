"""The identity of a log: which log it is, wherever its segments are, and how often it was restored.

Owns: the file `identity.json` in the log's directory (docs/log-format.md).
Never: what follows from it. Logs of earlier versions get one when a server opens them.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from embermq.store.log.errors import LogCorrupt
from embermq.store.log.segments import FIRST_OFFSET, sync_directory

FILE: Final = "identity.json"


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """A log. Each restore from an archive begins another generation, which the token tells from others of its number.

    Of generation 2 or later: the offsets from `lost_from` up to, not including, `first_offset` were lost.
    """

    log_id: str
    generation: int = 1
    token: str = ""
    lost_from: int = FIRST_OFFSET
    first_offset: int = FIRST_OFFSET


def new_identity() -> LogIdentity:
    return LogIdentity(uuid4().hex)


def read_identity(directory: Path) -> LogIdentity | None:
    """The identity of the log in a directory; None if it has none yet."""
    path = directory / FILE
    try:
        found = json.loads(path.read_bytes())
        return LogIdentity(
            str(found["log_id"]),
            int(found["generation"]),
            str(found["token"]),
            int(found["lost_from"]),
            int(found["first_offset"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise LogCorrupt(str(path), 0, "it does not say which log this is") from None


def write_identity(directory: Path, identity: LogIdentity) -> None:
    """Write the identity of the log in a directory, durably."""
    path = directory / FILE
    unfinished = path.with_name(f"{FILE}.new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(identity), indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_directory(directory)


def log_identity(directory: Path) -> LogIdentity:
    """The identity of the log in a directory, made if it has none. Only for the one who writes the log."""
    identity = read_identity(directory)
    if identity is None:
        identity = new_identity()
        write_identity(directory, identity)
    return identity
