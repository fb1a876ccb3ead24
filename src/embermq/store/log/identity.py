"""The identity of a log: which log it is, wherever its segments are, and how often it was restored.

Owns: the file `identity.json` in the log's directory (docs/log-format.md).
Never: what follows from it. Logs of earlier versions get one when a server opens them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from embermq.store.log.errors import LogCorrupt, LogLost
from embermq.store.log.segments import replace_file

FILE: Final = "identity.json"

LostRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """A log. Each restore from an archive begins another generation, which the token tells from others of its number.

    `lost` has the offsets that no record has, because they were lost with a machine: the first, and the one after the
    last. The newest generation begins after the last of them.
    """

    log_id: str
    generation: int = 1
    token: str = ""
    lost: tuple[LostRange, ...] = ()


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
            tuple((int(first), int(end)) for first, end in found["lost"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise LogCorrupt(str(path), 0, "it does not say which log this is") from None


def lost_ranges(directory: Path) -> tuple[LostRange, ...]:
    """The offsets that were lost with a machine, of the log in a directory."""
    identity = read_identity(directory)
    return () if identity is None else identity.lost


def end_before(lost: Sequence[LostRange], following: int) -> int:
    """Where the segment ends after which one begins at `following`: there, unless the offsets between were lost."""
    return next((first for first, end in lost if end == following), following)


def goes_on_at(lost: Sequence[LostRange], offset: int) -> int:
    """The offset at which somebody goes on who has read all before this one: behind the lost ones, if they begin here.

    LogLost if it lies among them: who has read up to there has read records that the log does not have.
    """
    for first, end in lost:
        if first < offset < end:
            raise LogLost(offset, end)
        if first == offset:
            return end
    return offset


def present(lost: Sequence[LostRange], start: int, end: int) -> list[tuple[int, int]]:
    """A range in pieces, without lost offsets; LogLost as `goes_on_at` of its start."""
    pieces: list[tuple[int, int]] = []
    start = goes_on_at(lost, start)
    for first, behind in lost:
        if start <= first < end:
            pieces.append((start, first))
            start = behind
    pieces.append((start, end))
    return [(first, behind) for first, behind in pieces if first < behind]


def past_lost(lost: Sequence[LostRange], end: int) -> int:
    """The end of a range that is not to lie among lost offsets: behind them if it does."""
    return next((behind for first, behind in lost if first < end < behind), end)


def write_identity(directory: Path, identity: LogIdentity) -> None:
    """Write the identity of the log in a directory, durably."""
    replace_file(directory / FILE, json.dumps(asdict(identity), indent=1) + "\n")


def log_identity(directory: Path) -> LogIdentity:
    """The identity of the log in a directory, made if it has none. Only for the one who writes the log."""
    identity = read_identity(directory)
    if identity is None:
        identity = new_identity()
        write_identity(directory, identity)
    return identity
