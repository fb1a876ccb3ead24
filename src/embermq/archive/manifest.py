"""What an archive knows of each object: a small manifest of its own, written when the object is complete.

Owns: the names of objects and the form of manifests (docs/archive.md, "Objects").
Never: reading or writing them.
"""

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from embermq.archive.errors import ArchiveDamaged, ArchiveError

FORMAT: Final = 1
IDENTITIES: Final = "log"
GENERATIONS: Final = "generations"
SEGMENTS: Final = "segments"
CHECKPOINTS: Final = "checkpoints"
MANIFEST_SUFFIX: Final = ".json"

_NAME: Final = re.compile(r"(\d{20})-(\d{6})\.json")


def object_name(folder: str, offset: int, generation: int) -> str:
    """The name of an object, without a suffix: names sort as offsets do, and no generation overwrites another's."""
    return f"{folder}/{offset:020d}-{generation:06d}"


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One object: its size and the SHA-256 of its bytes, in hexadecimal digits."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A closed segment in an archive. It has the records from `first_offset` up to, not including, `next_offset`."""

    first_offset: int
    next_offset: int
    first_timestamp_us: int
    last_timestamp_us: int
    blocks: int
    generation: int
    log: ArchivedFile
    index: ArchivedFile
    topics: ArchivedFile | None

    @property
    def size_bytes(self) -> int:
        """The bytes of the segment file, header and blocks."""
        return self.log.size_bytes

    @property
    def sha256(self) -> str:
        """The checksum of the segment file."""
        return self.log.sha256

    @property
    def name(self) -> str:
        """The name of its objects, without a suffix."""
        return object_name(SEGMENTS, self.first_offset, self.generation)


@dataclass(frozen=True, slots=True)
class ArchivedCheckpoint:
    """A checkpoint in an archive: the retained set and the sessions as the records before `offset` have left them."""

    offset: int
    timestamp_us: int
    generation: int
    file: ArchivedFile

    @property
    def size_bytes(self) -> int:
        return self.file.size_bytes

    @property
    def name(self) -> str:
        """The name of its objects, without a suffix."""
        return object_name(CHECKPOINTS, self.offset, self.generation)


@dataclass(frozen=True, slots=True)
class Generation:
    """A log that was restored from the archive goes on as another generation, behind offsets that nobody has.

    The offsets from `lost_from` up to, not including, `first_offset` are those that were lost with the old machine.
    """

    generation: int
    token: str
    lost_from: int
    first_offset: int
    made: str

    @property
    def name(self) -> str:
        return object_name(GENERATIONS, self.first_offset, self.generation)


Manifest = TypeVar("Manifest", ArchivedSegment, ArchivedCheckpoint, Generation)


def parsed_name(name: str) -> tuple[int, int] | None:
    """The offset and the generation in the name of a manifest; None if it is no manifest."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def to_json(manifest: ArchivedSegment | ArchivedCheckpoint | Generation) -> bytes:
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1).encode() + b"\n"


def from_json(kind: type[Manifest], name: str, data: bytes) -> Manifest:
    """A manifest; ArchiveDamaged if it is none of this kind, ArchiveError if a newer EmberMQ has written it."""
    try:
        found = json.loads(data)
        version = int(found["format"])
        if version > FORMAT:
            raise ArchiveError(
                f"{name} has archive format {version}; this EmberMQ knows formats up to {FORMAT}, use a newer one"
            )
        values: dict[str, Any] = {field.name: found[field.name] for field in fields(kind)}
        for key in ("log", "index", "topics", "file"):
            if values.get(key) is not None:
                values[key] = ArchivedFile(int(values[key]["size_bytes"]), str(values[key]["sha256"]))
        manifest = kind(**values)
        is_right = manifest.name + MANIFEST_SUFFIX == name
    except (ValueError, KeyError, TypeError):
        is_right = False
    if not is_right:
        raise ArchiveDamaged(f"{name} of the archive is damaged: it is not the manifest that its name says")
    return manifest
