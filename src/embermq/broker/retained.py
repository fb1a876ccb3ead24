"""Retained messages for a new subscription (3.1.1 section 3.3.1.3): never cut short, as fast as the reader takes them.

Owns: how far each subscription's retained messages have been sent, and whose turn it is.
A stream holds a position, not a copy: it reads the store in pieces, so a million retained messages cost no memory.
Linear without a snapshot: what was retained after the SUBSCRIBE is sent live, so the stream skips it.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.held import Held, HeldOffer
from embermq.broker.link import Link
from embermq.protocol.packets import Publish
from embermq.protocol.topics import has_wildcard
from embermq.store.interface import Retained, RetainedPosition, Store

if TYPE_CHECKING:
    from embermq.broker.session import Session

PIECE: Final = 128
"""How many retained messages one client gets before it is another's turn."""
PIECES_A_TURN: Final = 16
"""How many pieces one turn may send, so that live messages are never far behind."""


@final
class RetainedStream:
    """The retained messages that one subscription is still to get."""

    __slots__ = ("position", "done")

    def __init__(self, position: RetainedPosition) -> None:
        self.position: Final = position
        self.done = False

    def take(self, store: Store, limit: int) -> list[Retained]:
        """The next piece, without what this subscription gets live. Empty and not `done`: ask again."""
        position = self.position
        if has_wildcard(position.topic_filter):
            piece = store.retained_scan(position.topic_filter, position.after_topic_name, limit)
            self.done = len(piece) < limit
        else:
            only = store.retained_get(position.topic_filter)
            piece = [] if only is None else [only]
            self.done = True
        if piece:
            position.after_topic_name = piece[-1].topic_name
        return [retained for retained in piece if retained.offset < position.before_offset]

    def rewind(self, after_topic_name: str) -> None:
        """The client stopped reading within a piece: go on from here the next time."""
        self.position.after_topic_name = after_topic_name
        self.done = False


@final
class RetainedStreams:
    """All streams, served in turn, a piece each."""

    __slots__ = ("_store", "_held", "_ready", "_unsettled")

    def __init__(self, store: Store, held: list[Held]) -> None:
        self._store: Final = store
        self._held: Final = held  # the core's: what the next commit releases
        self._ready: dict[Session, None] = {}
        self._unsettled: dict[str, int] = {}

    def unsettled(self, topic_name: str) -> None:
        """A retained publish was taken and is not durable yet: the store still shows the one before it.

        Every present subscription gets the new one live, so streams pass the old one over: it must not come last.
        """
        self._unsettled[topic_name] = self._unsettled.get(topic_name, 0) + 1

    def settled(self, topic_name: str) -> None:
        """A retained publish has become durable and was sent live."""
        count = self._unsettled[topic_name] - 1
        if count:
            self._unsettled[topic_name] = count
        else:
            del self._unsettled[topic_name]

    def ready(self, session: "Session") -> None:
        """A session may have room for more of its retained messages."""
        if session.streams:
            self._ready[session] = None

    def send_pieces(self) -> bool:
        """One piece for each session that is ready, the longest waiting first. True: there is more to do at once."""
        for _ in range(min(PIECES_A_TURN, len(self._ready))):
            session = next(iter(self._ready))
            del self._ready[session]
            link = session.link
            if link is not None and session.streams and self._send_piece(session, link) and session.streams:
                self._ready[session] = None
        return bool(self._ready)

    def _send_piece(self, session: "Session", link: Link) -> bool:
        """False: the client must read or acknowledge first."""
        stream = session.streams[0]
        outbound = session.outbound
        granted = stream.position.qos
        room = PIECE if granted == 0 else min(PIECE, outbound.room())
        if room <= 0 or not link.has_room():
            return False
        before = stream.position.after_topic_name
        for retained in stream.take(self._store, room):
            if not link.has_room():
                stream.rewind(before)
                break
            before = retained.topic_name
            if before in self._unsettled:
                continue
            message = Publish(before, retained.payload, retained.qos, True, False, 0, retained.properties)
            qos = min(retained.qos, granted)
            if qos == 0:
                link.deliver(message, 0, True, False, 0)
            elif outbound.queue is not None:
                outbound.accept(message, -1, qos, True)
                self._held.append(HeldOffer(session, message, qos))
            else:
                outbound.offer(link, message, retained.offset, qos, True)
        if granted and outbound.queue is not None:
            self._store.append_position(session.session_id, session.client_id, stream.position, stream.done)
        if stream.done:
            session.streams.popleft()
        return True
