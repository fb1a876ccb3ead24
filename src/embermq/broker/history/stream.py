"""A history stream: what one history subscription is still to get, and how far it is.

Owns: the position in the past, and the state of one subscription.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.broker.history.history_filter import HistoryFilter
from embermq.broker.session import Subscription
from embermq.store.history.pieces import HistoryPiece, HistoryRead
from embermq.store.interface import StoreError

PENDING: Final = 0  # SUBACK waits for its commit
READY: Final = 1  # the next piece may be asked for
READING: Final = 2  # it was asked for, or it has come and waits for its turn
BLOCKED: Final = 3  # the client must read or acknowledge first
FOLLOWING: Final = 4  # everything durable was read: it waits for more
LIVE: Final = 5  # messages come as they are published
ENDED: Final = 6


@final
class Lane:
    """The history streams whose next read is of one kind, and how many of them are read at a time.

    A read of the archive may take long: it has a lane of its own, so that those of the log do not wait for it.
    `ready`: the streams whose next piece may be asked for, the longest waiting first.
    """

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


@final
class HistoryStream(HistoryRead):
    """One history subscription. `subscription` has the whole filter as the client sent it, and the options."""

    __slots__ = (
        "subscription",
        "asked",
        "has_properties",
        "lane",
        "state",
        "offset",
        "before_offset",
        "before_us",
        "after_topic_name",
        "left_us",
        "_arrived",
    )

    def __init__(
        self,
        subscription: Subscription,
        asked: HistoryFilter,
        has_properties: bool,
        lane: Lane,
        fence_offset: int,
        now_us: int,
        arrived: "Callable[[HistoryStream, HistoryPiece | None, StoreError | None], None]",
    ) -> None:
        """`fence_offset`: the next record's, at the SUBSCRIBE. `arrived` is called with each piece."""
        super().__init__()
        self.subscription: Final = subscription
        self.asked: Final = asked
        self.has_properties: Final = has_properties  # whether the client gets properties (MQTT 5)
        self.lane = lane  # of its next read
        self.state = PENDING
        self.offset = 0  # of the next record to read; 0 until the first piece has come
        has_end = asked.is_as_of or asked.to_us > 0
        self.before_offset: Final = fence_offset if has_end else 0
        # Up to now is up to the SUBSCRIBE: records of this very instant belong to it.
        self.before_us: Final = asked.to_us if asked.to_us < now_us else 0
        self.after_topic_name = ""
        self.left_us = 0  # when it left the live messages for the log again
        self._arrived: Final = arrived

    def make_ready(self) -> None:
        """Its next piece may be asked for."""
        self.state = READY
        self.lane.ready[self] = None

    def done(self, piece: HistoryPiece | None, error: StoreError | None) -> None:
        if not self.is_cancelled:
            self._arrived(self, piece, error)
