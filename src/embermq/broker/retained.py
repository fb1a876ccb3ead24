"""Retained messages for a new subscription (3.1.1 section 3.3.1.3): never cut short, as fast as the reader takes them.

Owns: how far each subscription's retained messages have been sent, and whose turn it is.
A stream holds a position, not a copy: it reads the store in pieces, so a million retained messages cost no memory.
Linear without a snapshot: what was retained after the SUBSCRIBE is sent live, so the stream skips it.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.held import Held, HeldOffer
from embermq.broker.link import Link
from embermq.protocol.packets import Publish
from embermq.protocol.topics import has_wildcard, matches
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

    __slots__ = ("position", "done", "replaced")

    def __init__(self, position: RetainedPosition) -> None:
        self.position: Final = position
        self.done = False
        # Messages that were retained at the SUBSCRIBE and replaced before SUBACK could leave; None: there was none.
        self.replaced: dict[str, Publish | None] = {}

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

    __slots__ = ("_store", "_held", "_ready", "_unsettled", "_fresh")

    def __init__(self, store: Store, held: list[Held]) -> None:
        self._store: Final = store
        self._held: Final = held  # the core's: what the next commit releases
        self._ready: dict[Session, None] = {}
        self._unsettled: dict[str, list[Publish]] = {}
        self._fresh: dict[RetainedStream, Session] = {}  # SUBACK still waits

    def unsettled(self, message: Publish) -> None:
        """A retained publish is being taken; until it is durable the store shows the one before it.

        Every present subscription gets the new one live, so streams pass the old one over: it must not come last.
        A subscription whose SUBACK still waits is sent the old one first, since that was the last at its SUBSCRIBE.
        """
        topic_name = message.topic_name
        waiting = self._unsettled.get(topic_name)
        for stream in self._fresh:
            if topic_name not in stream.replaced and matches(stream.position.topic_filter, topic_name):
                stream.replaced[topic_name] = self._last(topic_name, waiting)
        if waiting is None:
            self._unsettled[topic_name] = [message]
        else:
            waiting.append(message)

    def _last(self, topic_name: str, waiting: list[Publish] | None) -> Publish | None:
        if waiting:
            return waiting[-1] if waiting[-1].payload else None
        retained = self._store.retained_get(topic_name)
        return None if retained is None else _as_message(retained)

    def settled(self, topic_name: str) -> None:
        """The oldest unsettled retained publish of a topic has become durable and was sent live."""
        waiting = self._unsettled[topic_name]
        del waiting[0]
        if not waiting:
            del self._unsettled[topic_name]

    def subscribed(self, session: "Session", position: RetainedPosition) -> None:
        """A subscription wants its retained messages, once SUBACK has left."""
        stream = RetainedStream(position)
        session.streams.append(stream)
        self._fresh[stream] = session

    def begin(self, session: "Session") -> None:
        """SUBACK has left: the first piece of each stream follows it at once, so few messages come without delay."""
        link = session.link
        for stream in [stream for stream, owner in self._fresh.items() if owner is session]:
            del self._fresh[stream]
            if stream.replaced and link is not None and stream in session.streams:
                for message in stream.replaced.values():
                    if message is not None:
                        self._send(session, link, message, -1, stream.position.qos)
        if link is not None:
            for _ in range(len(session.streams)):
                if not session.streams or not self._send_piece(session, link):
                    break
            self.ready(session)

    def ready(self, session: "Session") -> None:
        """A session may have room for more of its retained messages."""
        if session.streams:
            self._ready[session] = None

    def send_pieces(self) -> bool:
        """One piece for each session that is ready, the longest waiting first. True: there is more to do at once."""
        if not self._ready:
            return False
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
            self._send(session, link, _as_message(retained), retained.offset, granted)
        if granted and outbound.queue is not None:
            self._store.append_position(session.session_id, session.client_id, stream.position, stream.done)
        if stream.done:
            session.streams.popleft()
        return True

    def _send(self, session: "Session", link: Link, message: Publish, offset: int, granted: int) -> None:
        qos = min(message.qos, granted)
        outbound = session.outbound
        if qos == 0:
            link.deliver(message, 0, True, False, 0)
        elif outbound.queue is not None:
            if outbound.accept(message, -1, qos, True):
                self._held.append(HeldOffer(session, message, qos))
        else:
            outbound.offer(link, message, offset, qos, True)


def _as_message(retained: Retained) -> Publish:
    return Publish(retained.topic_name, retained.payload, retained.qos, True, False, 0, retained.properties)
