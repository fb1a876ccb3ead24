"""The retained messages that a session is still to get: a stream for each subscription (`retained_delivery`).

Owns: how far each stream is, and which of a session's streams wait for their SUBACK or have messages to send.
"""

from collections import OrderedDict
from typing import Final, final

from embermq.protocol.packets import Publish
from embermq.protocol.topics import has_wildcard
from embermq.store.interface import RetainedPiece, Store
from embermq.store.records import RetainedPosition

PIECE_MESSAGES: Final = 128
"""How many retained messages one client gets before it is another client's turn."""
PIECE_BYTES: Final = 1024 * 1024
"""About how many bytes of topic names and payloads one piece holds; a message that is larger is a piece of its own."""
PIECE_SEEKS: Final = 256
"""How many topics that do not match are passed over for one piece: `+/x` may match none of a million."""
SEEK_BYTES: Final = 4 * 1024
"""One seek takes about as long as reading this many bytes."""


def read_piece(store: Store, topic_filter: str, after_topic_name: str, limit: int = PIECE_MESSAGES) -> RetainedPiece:
    """The next retained messages that a topic filter matches, within the bounds of a piece."""
    if has_wildcard(topic_filter):
        return store.retained.piece(topic_filter, after_topic_name, limit, PIECE_BYTES, PIECE_SEEKS)
    only = store.retained.get(topic_filter)
    if only is None:
        return RetainedPiece([], after_topic_name, True, 0, 0)
    return RetainedPiece([only], after_topic_name, True, len(only.topic) + len(only.payload), 0)


@final
class RetainedStream:
    """The retained messages that one subscription is still to get."""

    __slots__ = ("position", "is_done", "is_dropped", "piece_cost_bytes", "replaced")

    def __init__(self, position: RetainedPosition) -> None:
        self.position: Final = position
        self.is_done = False
        self.is_dropped = False
        self.piece_cost_bytes = 0  # what the last piece took of the store's time, as bytes of payload
        # Messages that were retained at the SUBSCRIBE and replaced before SUBACK was sent; None: there was none.
        self.replaced: dict[str, Publish | None] = {}

    def take(self, store: Store, limit: int) -> RetainedPiece:
        """The next piece; it may have messages that this subscription gets live. Empty and not `is_done`: ask again."""
        position = self.position
        piece = read_piece(store, position.topic_filter, position.after_topic_name, limit)
        self.is_done = piece.done
        self.piece_cost_bytes = piece.size_bytes + piece.seeks * SEEK_BYTES
        position.after_topic_name = piece.after_topic_name
        return piece

    def drop(self) -> None:
        """What it has still to send is not wanted any more."""
        self.is_dropped = True

    def rewind(self, after_topic_name: str) -> None:
        """The client stopped reading within a piece: continue from here next time."""
        self.position.after_topic_name = after_topic_name
        self.is_done = False


# One empty one for all sessions, never changed: most have no streams.
_NO_FLOWING: Final[OrderedDict[RetainedStream, None]] = OrderedDict()
_NO_PENDING: Final[list[list[RetainedStream]]] = []
_NO_FILTERS: Final[dict[str, list[RetainedStream]]] = {}


@final
class SessionStreams:
    """The streams of one session: those whose SUBACK is pending, by SUBSCRIBE, and those that flow, oldest first.

    A client may have one stream for each of its subscriptions, so nothing here walks through all of them.
    `waiting`: how many streams follow an acknowledgement: those that flow, and history streams that are not live.
    """

    __slots__ = ("waiting", "_flowing", "_pending", "_by_filter", "_count")

    def __init__(self) -> None:
        self.waiting = 0
        self._flowing = _NO_FLOWING
        self._pending = _NO_PENDING  # a list for each SUBACK that is pending
        self._by_filter = _NO_FILTERS
        self._count = 0

    def count_waiting(self, count: int) -> None:
        """A history stream follows acknowledgements, with 1, or does so no longer, with -1."""
        self.waiting += count

    def __len__(self) -> int:
        """How many streams are not finished."""
        return self._count

    def subscribe_pending(self) -> None:
        """A SUBSCRIBE is being taken: the streams that are added now start with its SUBACK."""
        if self._pending is _NO_PENDING:
            self._pending = []
        self._pending.append([])

    def add(self, position: RetainedPosition) -> None:
        """A subscription of the SUBSCRIBE that is being taken is to get its retained messages."""
        stream = RetainedStream(position)
        self._pending[-1].append(stream)
        self._remember(stream)

    def restore(self, position: RetainedPosition) -> None:
        """A stream that was not finished before the server stopped."""
        stream = RetainedStream(position)
        self._flow(stream)
        self._remember(stream)

    def _flow(self, stream: RetainedStream) -> None:
        if self._flowing is _NO_FLOWING:
            self._flowing = OrderedDict()
        self._flowing[stream] = None
        self.waiting += 1

    def _stop(self, stream: RetainedStream) -> None:
        stream.drop()
        if stream in self._flowing:
            del self._flowing[stream]
            self.waiting -= 1
        self._count -= 1

    def _remember(self, stream: RetainedStream) -> None:
        if self._by_filter is _NO_FILTERS:
            self._by_filter = {}
        self._by_filter.setdefault(stream.position.topic_filter, []).append(stream)
        self._count += 1

    def start(self) -> list[RetainedStream]:
        """The oldest pending SUBACK has been sent: its streams, which flow from now on."""
        started = [stream for stream in self._pending.pop(0) if not stream.is_dropped]
        for stream in started:
            self._flow(stream)
        return started

    def pending(self) -> list[RetainedStream]:
        """The streams whose SUBACK is pending."""
        return [stream for streams in self._pending for stream in streams if not stream.is_dropped]

    def is_flowing(self) -> bool:
        """Whether a stream has messages to send."""
        return bool(self._flowing)

    def first(self) -> RetainedStream:
        """The oldest stream that flows."""
        return next(iter(self._flowing))

    def finish(self, stream: RetainedStream) -> None:
        """A stream has sent everything, or is not wanted any more."""
        self._stop(stream)
        topic_filter = stream.position.topic_filter
        same = self._by_filter[topic_filter]
        same.remove(stream)
        if not same:
            del self._by_filter[topic_filter]

    def drop(self, topic_filter: str) -> None:
        """Give up what the streams of a topic filter have still to send."""
        for stream in self._by_filter.pop(topic_filter, ()):
            self._stop(stream)

    def drop_qos_0(self) -> None:
        """The connection has ended: QoS 0 is not part of the session's state."""
        for stream in [stream for same in self._by_filter.values() for stream in same]:
            if stream.position.qos == 0:
                self.finish(stream)
