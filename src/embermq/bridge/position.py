"""How far a bridge is: durable, so that a crash of this server repeats nothing at QoS 2 and loses nothing.

Owns: two files in `bridges/` of the data directory. `NAME.position` has two slots that are written in turn, each with a
checksum: a write that is torn leaves the other. `NAME.json` has what belongs to the rules that were in use.
Never: what a position means; `outgoing` says that.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final, final
from zlib import crc32

from embermq.errors import ConfigError
from embermq.store.log.readers import BRIDGE, reader_path, register_reader
from embermq.store.log.segments import make_directory, replace_file, sync_directory

DIRECTORY: Final = "bridges"
SLOT_BYTES: Final = 512
_MAGIC: Final = b"EMBRIDG1"
_SLOT: Final = Struct("<8sQQQQB")
_CRC: Final = Struct("<I")


@final
@dataclass(frozen=True, slots=True)
class Position:
    """`offset`: the first record of the log that is not done. `sequence`: how many messages with a packet identifier
    are done; `completed`: of how many of them the handshake has ended too. `is_retained_due`: the retained messages of
    before `offset` are still to be sent.
    """

    offset: int
    sequence: int = 0
    completed: int = 0
    is_retained_due: bool = True


@final
@dataclass(frozen=True, slots=True)
class UsedRules:
    """The digest of the rules for what is sent, empty if there were none; the filters that the other broker has
    granted; and whether it has ever accepted a connection.
    """

    digest: str = ""
    subscribed: list[str] = field(default_factory=list)
    has_connected: bool = False


@final
class PositionFile:
    """The files of one bridge."""

    def __init__(self, data: Path, name: str) -> None:
        self._data: Final = data
        self._reader: Final = BRIDGE + name
        self.slots_path: Final = data / DIRECTORY / f"{name}.position"
        self.rules_path: Final = data / DIRECTORY / f"{name}.json"
        self._count = 0  # of the newest slot
        self._descriptor = -1

    def load(self) -> Position | None:
        """The newest position; None if there is none. Keeps the file open, until `close`."""
        make_directory(self.slots_path.parent)
        self._descriptor = os.open(self.slots_path, os.O_RDWR | os.O_CREAT, 0o600)
        sync_directory(self.slots_path.parent)
        found: Position | None = None
        for slot in range(2):
            data = os.pread(self._descriptor, _SLOT.size + _CRC.size, slot * SLOT_BYTES)
            if len(data) < _SLOT.size + _CRC.size or _CRC.unpack_from(data, _SLOT.size)[0] != crc32(data[: _SLOT.size]):
                continue
            magic, count, offset, sequence, completed, is_due = _SLOT.unpack_from(data)
            if magic == _MAGIC and count > self._count:
                self._count = count
                found = Position(offset, sequence, completed, bool(is_due))
        return found

    def save(self, position: Position, is_durable: bool) -> None:
        """Write a position. `is_durable`: it must outlive a power cut."""
        self._count += 1
        packed = _SLOT.pack(
            _MAGIC,
            self._count,
            position.offset,
            position.sequence,
            position.completed,
            position.is_retained_due,
        )
        data = packed + _CRC.pack(crc32(packed))
        os.pwrite(self._descriptor, data, self._count % 2 * SLOT_BYTES)
        if is_durable:
            os.fdatasync(self._descriptor)

    def keep_log(self, offset: int) -> None:
        """Tell the store from which offset on the log is needed."""
        register_reader(self._data, self._reader, offset)

    def used_rules(self) -> UsedRules | None:
        """The rules that were in use last; None if there were none, also if the file is damaged."""
        try:
            found = json.loads(self.rules_path.read_bytes())
            subscribed = [str(each) for each in found["subscribed"]]
            return UsedRules(str(found["digest"]), subscribed, bool(found["has_connected"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def use_rules(self, used: UsedRules) -> None:
        """Durably: without this file the bridge would begin at the end of the log."""
        replace_file(self.rules_path, json.dumps(asdict(used)))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def forget_positions(data: Path, names_kept: set[str]) -> list[str]:
    """Delete the files of bridges that are no longer in the settings; returns their names."""
    forgotten: list[str] = []
    for path in sorted((data / DIRECTORY).glob("*.position")):
        name = path.stem
        if name not in names_kept:
            try:
                for file in (reader_path(data, BRIDGE + name), path.with_name(f"{name}.json"), path):
                    file.unlink(missing_ok=True)
            except OSError as error:
                raise ConfigError(f"cannot delete {path}: {error.strerror or error}") from None
            forgotten.append(name)
    return forgotten
