"""A segment of the log: which records a file has, and how large it is.

Owns: nothing that runs. The writer changes its own segments; everybody else gets copies.
"""

from pathlib import Path
from typing import Final, final

SEGMENT_HEADER_BYTES: Final = 32
ENTRY_BYTES: Final = 48
"""Of one block in the index beside the segment."""


@final
class Segment:
    """One segment. An empty one has equal offsets and no timestamps (0). What is below `next_offset` is durable."""

    def __init__(
        self,
        path: Path,
        first_offset: int,
        next_offset: int = 0,
        blocks: int = 0,
        file_bytes: int = SEGMENT_HEADER_BYTES,
        first_timestamp_us: int = 0,
        last_timestamp_us: int = 0,
    ) -> None:
        self.path: Final = path
        self.first_offset: Final = first_offset
        self.next_offset = next_offset or first_offset
        self.blocks = blocks
        self.file_bytes = file_bytes  # of the header and the blocks; zeros that are written ahead do not count
        self.first_timestamp_us = first_timestamp_us
        self.last_timestamp_us = last_timestamp_us

    @property
    def size_bytes(self) -> int:
        """The bytes of the blocks and of the index together."""
        return self.file_bytes + self.blocks * ENTRY_BYTES

    def add_block(self, block_bytes: int, next_offset: int, first_timestamp_us: int, last_timestamp_us: int) -> None:
        """A block was written and synced."""
        if not self.blocks:
            self.first_timestamp_us = first_timestamp_us
        self.last_timestamp_us = last_timestamp_us
        self.file_bytes += block_bytes
        self.blocks += 1
        self.next_offset = next_offset

    def copy(self) -> "Segment":
        """As it is now, whatever is written later."""
        return Segment(
            self.path,
            self.first_offset,
            self.next_offset,
            self.blocks,
            self.file_bytes,
            self.first_timestamp_us,
            self.last_timestamp_us,
        )
