"""Lanes: the history streams that wait for a read of one kind, and how many of them are read at a time.

Owns: whose turn it is. A read of the archive may take long: it has a lane of its own, so that those of the log, which
take milliseconds, do not wait for it.
"""

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from embermq.broker.history.stream import HistoryStream


@final
class Lane:
    """`ready`: the streams whose next piece may be asked for, the longest waiting first."""

    __slots__ = ("is_archived", "ready", "reading", "_reads_max")

    def __init__(self, is_archived: bool, reads_max: int) -> None:
        """`is_archived`: its reads are of the archive. At most `reads_max` pieces are asked for at a time."""
        self.is_archived: Final = is_archived
        self.ready: Final[dict[HistoryStream, None]] = {}
        self.reading = 0  # pieces that were asked for and not taken yet
        self._reads_max: Final = reads_max

    def next(self) -> "HistoryStream | None":
        """Take the stream off whose piece is to be asked for next; None if there is none, or enough are asked for."""
        if not self.ready or self.reading >= self._reads_max:
            return None
        stream = next(iter(self.ready))
        del self.ready[stream]
        return stream
