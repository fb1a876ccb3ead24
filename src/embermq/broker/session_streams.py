"""A session's streams of retained messages: which filters are still to be served, and in which order.

Owns: the streams whose SUBACK waits, by SUBSCRIBE, and those that flow, oldest first.
Never: a message. `retained` sends them.
A client may have one stream for each subscription it is allowed, so nothing here looks through all of them.
"""

from collections import OrderedDict
from typing import Final, final

from embermq.protocol.packets import Publish
from embermq.protocol.topics import has_wildcard
from embermq.store.interface import Retained, RetainedPosition, Store

PIECE_BYTES: Final = 1024 * 1024
"""About how many bytes of payload are read from the store at a time; the client may take far less."""

PIECE_SEEKS: Final = 1_000
"""How many topics that do not match are passed over at a time: `+/x` may match none of a million."""
SEEK_BYTES: Final = 1024
"""One seek takes about as long as reading this many bytes."""


@final
class RetainedStream:
    """The retained messages that one subscription is still to get."""

    __slots__ = ("position", "done", "dropped", "piece_cost_bytes", "replaced")

    def __init__(self, position: RetainedPosition) -> None:
        self.position: Final = position
        self.done = False
        self.dropped = False  # nobody wants them any more
        self.piece_cost_bytes = 0  # what the last piece took of the store's time, as bytes of payload
        # Messages that were retained at the SUBSCRIBE and replaced before SUBACK could leave; None: there was none.
        self.replaced: dict[str, Publish | None] = {}

    def take(self, store: Store, limit: int) -> list[Retained]:
        """The next piece, without what this subscription gets live. Empty and not `done`: ask again."""
        position = self.position
        if has_wildcard(position.topic_filter):
            piece = store.retained_piece(
                position.topic_filter, position.after_topic_name, limit, PIECE_BYTES, PIECE_SEEKS
            )
            found = piece.found
            self.done = piece.done
            self.piece_cost_bytes = piece.payload_bytes + piece.seeks * SEEK_BYTES
            position.after_topic_name = piece.after_topic_name
        else:
            only = store.retained_get(position.topic_filter)
            found = [] if only is None else [only]
            self.done = True
            self.piece_cost_bytes = 0 if only is None else len(only.payload)
        return [retained for retained in found if retained.offset < position.before_offset]

    def rewind(self, after_topic_name: str) -> None:
        """The client stopped reading within a piece: go on from here the next time."""
        self.position.after_topic_name = after_topic_name
        self.done = False


@final
class SessionStreams:
    """The streams of one session. Its length is how many of them are not done."""

    __slots__ = ("_flowing", "_fresh", "_of_filter", "_count")

    def __init__(self) -> None:
        self._flowing: Final[OrderedDict[RetainedStream, None]] = OrderedDict()
        self._fresh: Final[list[list[RetainedStream]]] = []  # a list for each SUBACK that waits
        self._of_filter: Final[dict[str, list[RetainedStream]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def expect(self) -> None:
        """A SUBSCRIBE is being taken: what is added now begins with its SUBACK."""
        self._fresh.append([])

    def add(self, stream: RetainedStream) -> None:
        """A filter of the newest SUBSCRIBE."""
        self._fresh[-1].append(stream)
        self._remember(stream)

    def restore(self, stream: RetainedStream) -> None:
        """A stream that began before a restart."""
        self._flowing[stream] = None
        self._remember(stream)

    def _remember(self, stream: RetainedStream) -> None:
        self._of_filter.setdefault(stream.position.topic_filter, []).append(stream)
        self._count += 1

    def begin(self) -> list[RetainedStream]:
        """The oldest SUBACK that waited has left: its streams, which flow from now on."""
        begun = [stream for stream in self._fresh.pop(0) if not stream.dropped]
        for stream in begun:
            self._flowing[stream] = None
        return begun

    def fresh(self) -> list[RetainedStream]:
        """Those whose SUBACK waits."""
        return [stream for batch in self._fresh for stream in batch if not stream.dropped]

    def flow(self) -> bool:
        """Whether there is a first one."""
        return bool(self._flowing)

    def first(self) -> RetainedStream:
        """The oldest that flows."""
        return next(iter(self._flowing))

    def finish(self, stream: RetainedStream) -> None:
        """A stream has sent all it had, or is not wanted any more."""
        stream.dropped = True
        self._flowing.pop(stream, None)
        topic_filter = stream.position.topic_filter
        same = self._of_filter[topic_filter]
        same.remove(stream)
        if not same:
            del self._of_filter[topic_filter]
        self._count -= 1

    def drop(self, topic_filter: str) -> None:
        """Give up what the streams of a filter have still to send."""
        for stream in self._of_filter.pop(topic_filter, ()):
            stream.dropped = True
            self._flowing.pop(stream, None)
            self._count -= 1

    def drop_unacknowledged(self) -> None:
        """The connection is gone: what was granted at QoS 0 went with it."""
        for stream in [stream for same in self._of_filter.values() for stream in same]:
            if stream.position.qos == 0:
                self.finish(stream)
