"""What was, in pieces: the words between the broker and an engine that keeps a log.

Owns: the pieces, and the interface of the reads. Nothing here runs.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from embermq.protocol.packets import Publish
from embermq.store.errors import StoreError
from embermq.store.history.retained_messages import Retained
from embermq.store.topic_tree import Moments, TopicSource

if TYPE_CHECKING:
    from embermq.store.history.lanes import ReadLanes
    from embermq.store.history.trimmed import TrimmedLog


@final
class RetainedChange:
    """A change of a topic's retained message; `message` is None where it was cleared."""

    __slots__ = ("timestamp_us", "offset", "message")

    def __init__(self, timestamp_us: int, offset: int, message: Retained | None) -> None:
        self.timestamp_us: Final = timestamp_us
        self.offset: Final = offset
        self.message: Final = message


@final
class LogMessage:
    """A message of the log, as it was published."""

    __slots__ = ("offset", "timestamp_us", "client_id", "message")

    def __init__(self, offset: int, timestamp_us: int, client_id: str, message: Publish) -> None:
        self.offset: Final = offset
        self.timestamp_us: Final = timestamp_us
        self.client_id: Final = client_id
        self.message: Final = message


@final
class HistoryPiece:
    """What one read has found: messages of the log (`messages`) or of the retained set of an instant (`retained`).

    The next read goes on at `next_offset`, or after `after_topic_name`. `is_done`: there is nothing more, also later.
    `is_end`: everything that was durable has been read. `is_archived`: only the archive has what comes next.
    """

    __slots__ = ("messages", "retained", "next_offset", "after_topic_name", "is_end", "is_done", "is_archived")

    def __init__(
        self,
        messages: list[LogMessage],
        retained: list[Retained],
        next_offset: int,
        after_topic_name: str,
        is_end: bool,
        is_done: bool,
        is_archived: bool = False,
    ) -> None:
        self.messages: Final = messages
        self.retained: Final = retained
        self.next_offset: Final = next_offset
        self.after_topic_name: Final = after_topic_name
        self.is_end: Final = is_end
        self.is_done: Final = is_done
        self.is_archived: Final = is_archived


@mypyc_attr(allow_interpreted_subclasses=True)
class HistoryRead(ABC):
    """One read that was asked for. `is_cancelled`: nobody wants it any more, and `done` need not be called."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    @abstractmethod
    def done(self, piece: HistoryPiece | None, error: StoreError | None) -> None:
        """Called once, on the broker's thread: with a piece, or with the error that kept it from being read."""


@final
class LogSpan:
    """Which messages of the log are wanted: those that a filter matches, from an offset on or from an instant on.

    `offset` 0: from the first record on that is not older than `from_us`. They end before `before_offset` and before
    `before_us`; 0: no end. `limit` and `bytes_max` bound what one read gives; it gives one message at least.
    """

    __slots__ = ("topic_filter", "offset", "from_us", "before_offset", "before_us", "limit", "bytes_max")

    def __init__(
        self,
        topic_filter: str,
        offset: int,
        from_us: int,
        before_offset: int,
        before_us: int,
        limit: int,
        bytes_max: int,
    ) -> None:
        self.topic_filter: Final = topic_filter
        self.offset: Final = offset
        self.from_us: Final = from_us
        self.before_offset: Final = before_offset
        self.before_us: Final = before_us
        self.limit: Final = limit
        self.bytes_max: Final = bytes_max


@final
class RetainedSpan:
    """Which retained messages of an instant are wanted: those that a filter matches, after a topic name.

    Changes at `before_offset` and later do not count: at the instant of a turn, some may be recorded only later.
    """

    __slots__ = ("topic_filter", "instant_us", "before_offset", "after_topic_name", "limit", "bytes_max")

    def __init__(
        self, topic_filter: str, instant_us: int, before_offset: int, after_topic_name: str, limit: int, bytes_max: int
    ) -> None:
        self.topic_filter: Final = topic_filter
        self.instant_us: Final = instant_us
        self.before_offset: Final = before_offset
        self.after_topic_name: Final = after_topic_name
        self.limit: Final = limit
        self.bytes_max: Final = bytes_max


@mypyc_attr(allow_interpreted_subclasses=True)
class HistoryReads(ABC):
    """Reads of what was. They are answered one after the other, in the order in which they were asked for.

    A read that waits for the archive is answered later, and the others do not wait for it.
    """

    __slots__ = ()

    @abstractmethod
    def now_us(self) -> int:
        """The timestamp of a record that is appended now, in microseconds since 1970."""

    @abstractmethod
    def log_begins_us(self) -> int:
        """From which instant on the log, or its archive, has every message; 0 if nothing was trimmed.

        How far the archive reaches is known only after it was read: until then this is 0 if there is one.
        """

    @abstractmethod
    def retained_begins_us(self) -> int:
        """From which instant on the retained set is known; 0 if nothing was trimmed. Of the archive as above."""

    @abstractmethod
    def topics(self, moments: Moments) -> TopicSource:
        """The topics of one instant with their changes, on any thread; HistoryTrimmed if it is not known."""

    @abstractmethod
    def durable_offset(self) -> int:
        """The offset after the newest record that can be read."""

    @abstractmethod
    def log_bytes_from(self, offset: int) -> int:
        """How many bytes of the log must be kept for a record; more than any log has if it was trimmed."""

    @abstractmethod
    def read_log(self, read: HistoryRead, span: LogSpan, is_archived: bool) -> None:
        """Ask for the next messages of a span, without those of which the log is sure to have none.

        `is_archived`: as the piece before has told, only the archive has them.
        """

    @abstractmethod
    def read_retained(self, read: HistoryRead, span: RetainedSpan, is_archived: bool) -> None:
        """Ask for the next messages of a retained set. `is_archived`: as above."""

    @property
    @abstractmethod
    def lanes(self) -> "ReadLanes":
        """The threads that read, for other questions."""

    @property
    @abstractmethod
    def trimmed(self) -> "TrimmedLog | None":
        """What has what the log no longer has, if something does."""
