"""A segment of the log as the operator sees it."""

from typing import Final, final


@final
class LogSegment:
    """A file of the log, for the operator. The timestamps are 0 while it has no records."""

    __slots__ = ("first_offset", "next_offset", "size_bytes", "first_timestamp_us", "last_timestamp_us")

    def __init__(
        self, first_offset: int, next_offset: int, size_bytes: int, first_timestamp_us: int, last_timestamp_us: int
    ) -> None:
        self.first_offset: Final = first_offset
        self.next_offset: Final = next_offset
        self.size_bytes: Final = size_bytes
        self.first_timestamp_us: Final = first_timestamp_us
        self.last_timestamp_us: Final = last_timestamp_us
