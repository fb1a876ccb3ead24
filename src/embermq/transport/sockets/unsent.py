"""Unsent parts: what the kernel has not taken of the output of all sockets.

Owns: how many bytes that is. One message to many clients is one object for all of them, and counts once.
"""

from typing import Final, final

SHARED_BYTES_MIN: Final = 128
"""From here on a part is kept as it is, since other sockets may keep it too; smaller ones are joined."""
JOINED_BYTES_MAX: Final = 4 * 1024
"""Small parts that follow one another are joined up to here: each object takes memory besides its bytes."""
PART_BYTES: Final = 48
"""What a part takes besides its bytes: the object, or the count of its holders."""
REFERENCE_BYTES: Final = 8


@final
class UnsentParts:
    """The parts that all sockets of one poll keep, each with the number of times that it is kept."""

    __slots__ = ("_holders", "size_bytes")

    def __init__(self) -> None:
        self._holders: Final[dict[int, int]] = {}  # by the identity of the part, which is alive while it is kept
        self.size_bytes = 0

    def add(self, part: bytes) -> None:
        """A socket keeps a part."""
        key = id(part)
        count = self._holders.get(key, 0)
        self._holders[key] = count + 1
        self.size_bytes += REFERENCE_BYTES if count else REFERENCE_BYTES + PART_BYTES + len(part)

    def remove(self, part: bytes) -> None:
        """A socket has sent a part, or has ended."""
        key = id(part)
        count = self._holders[key]
        if count > 1:
            self._holders[key] = count - 1
            self.size_bytes -= REFERENCE_BYTES
        else:
            del self._holders[key]
            self.size_bytes -= REFERENCE_BYTES + PART_BYTES + len(part)
