"""The blocks of the shared log: a header of ours, and for records a block of the log as it is (docs/nodes.md).

Owns: the bytes of a block, in both directions, and what makes one unreadable.
Never: whether a block counts; `cluster.rules` says that.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final
from zlib import crc32

from embermq.cluster.sequencer import SequencerError

FORMAT: Final = 1
MAGIC: Final = b"EMSB"
HEADER: Final = Struct("<4sBBHIQQQqI")  # magic, format, kind, node, epoch, sequence, instance, number, moment, checksum
_CHECKED_BYTES: Final = HEADER.size - 4
NAME_BYTES_MAX: Final = 1024


class Kind(IntEnum):
    """What a block is. The numbers are stored: never reuse one."""

    GENESIS = 1  # the log begins: `number` is the offset of its first record, the body is its id
    JOIN = 2  # a process begins to be the node: `number` is the instance that was the node before, 0 for none
    PRESENT = 3  # the node is alive: `number` is its next offset, `sequence` its own clock, the body its name
    FENCE = 4  # the node becomes the active one, with this epoch
    RECORDS = 5  # a commit group, a block of the log: it refers to no record before offset `number`
    LEAVE = 6  # the node stops
    EXPEL = 7  # an operator has the instance of a node stop


class UnreadableBlock(SequencerError):
    """A block of the shared log that this version cannot read: the node must stop before it."""


@dataclass(frozen=True, slots=True)
class SharedBlock:
    """One block. `instance` tells the processes apart that were the same node; `moment_us` is its writer's clock."""

    kind: Kind
    node: int
    instance: int = 0
    epoch: int = 0
    sequence: int = 0
    number: int = 0
    moment_us: int = 0
    body: bytes = b""

    def encoded(self) -> bytes:
        """The bytes in the shared log. The checksum is of the header: a block of the log has its own."""
        header = HEADER.pack(
            MAGIC,
            FORMAT,
            self.kind,
            self.node,
            self.epoch,
            self.sequence,
            self.instance,
            self.number,
            self.moment_us,
            0,
        )
        checked = header[:_CHECKED_BYTES]
        return b"".join((checked, crc32(checked).to_bytes(4, "little"), self.body))


def decode(position: int, data: bytes) -> SharedBlock:
    """The block at a position. UnreadableBlock: it is damaged, of another program, or of a newer format."""
    if len(data) < HEADER.size or data[:4] != MAGIC:
        raise UnreadableBlock(
            f"the shared log has something at position {position} that EmberMQ did not write: let only the nodes write"
            " to its topic; this one cannot be used any more, begin another with `ember cluster init`"
        )
    _, form, kind, node, epoch, sequence, instance, number, moment_us, checksum = HEADER.unpack_from(data)
    if form != FORMAT:
        raise UnreadableBlock(
            f"the block at position {position} of the shared log has format {form}, this EmberMQ knows format {FORMAT}:"
            " use the same version on all nodes"
        )
    if crc32(data[:_CHECKED_BYTES]) != checksum or kind not in _KINDS:
        raise UnreadableBlock(
            f"the block at position {position} of the shared log is damaged: stop all nodes, and begin another log from"
            " the newest data directory with `ember cluster init`"
        )
    return SharedBlock(Kind(kind), node, instance, epoch, sequence, number, moment_us, data[HEADER.size :])


_KINDS: Final = frozenset(int(kind) for kind in Kind)
