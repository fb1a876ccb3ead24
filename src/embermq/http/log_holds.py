"""What queues hold of the log: how many bytes, and for how long.

Owns: the answer for one queue, from the offset of the oldest record that it needs.
"""

from bisect import bisect_right
from typing import Final

from embermq.store.interface import Segment


class LogHolds:
    """How much of the log is held by what needs a record of it."""

    __slots__ = ("_firsts", "_segments", "_sizes")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments: Final = segments
        self._firsts: Final = [segment.first_offset for segment in segments]
        sizes = [0]
        for segment in reversed(segments):
            sizes.append(sizes[-1] + segment.size_bytes)
        self._sizes: Final = sizes[:0:-1]  # from each segment to the end

    def held(self, offset: int) -> tuple[int, int]:
        """The bytes of the log from the segment of an offset on, and when that segment begins; 0 for no offset."""
        place = bisect_right(self._firsts, offset) - 1
        if not offset or place < 0:
            return 0, 0
        return self._sizes[place], self._segments[place].first_timestamp_us
