"""Retained messages for a new subscription (3.1.1 section 3.3.1.3): never cut short, as fast as the reader takes them.

Owns: how far each subscription's retained messages have been sent, and whose turn it is.
A stream holds a position, not a copy: it reads the store in pieces, so a million retained messages cost no memory.
Linear without a snapshot: what was retained after the SUBSCRIBE is sent live, so the stream skips it.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.effects import Held, HeldOffer
from embermq.broker.link import Link
from embermq.broker.session_streams import RetainedStream
from embermq.protocol.packets import Delivery, Publish
from embermq.protocol.topics import matches
from embermq.store.interface import Retained, RetainedPosition, Store

if TYPE_CHECKING:
    from embermq.broker.session import Session

PIECE: Final = 128
"""How many retained messages one client gets before it is another's turn."""
PIECES_A_TURN: Final = 16
"""How many pieces one turn may send, so that live messages are never far behind."""
FIRST_PIECES_A_TURN: Final = 256
"""How many first pieces follow their SUBACK in the same turn; one SUBSCRIBE may ask for thousands."""
BYTES_A_TURN: Final = 4 * 1024 * 1024
"""How many bytes of payload, or what takes as long, a turn may read from the store before the rest waits."""
COMPARISONS_MAX: Final = 100_000
"""How often retained publishes are compared with filters whose SUBACK waits. Beyond it, those get only what is new."""


@final
class RetainedStreams:
    """All streams, served in turn, a piece each."""

    __slots__ = ("_store", "_held", "_ready", "_unsettled", "_fresh", "_comparisons", "_first_pieces", "_turn_bytes")

    def __init__(self, store: Store, held: list[Held]) -> None:
        self._store: Final = store
        self._held: Final = held  # the core's: what the next commit releases
        self._ready: dict[Session, None] = {}
        self._unsettled: dict[str, Publish] = {}  # by topic, the newest that is not durable yet
        self._fresh: dict[Session, int] = {}  # how many SUBACKs still wait
        self._comparisons = 0  # since none waited
        self._first_pieces = 0  # of this turn
        self._turn_bytes = 0  # read from the store in this turn

    def unsettled(self, message: Publish) -> None:
        """A retained publish is being taken; until it is durable the store shows the one before it.

        Every present subscription gets the new one live, so streams pass the old one over: it must not come last.
        A subscription whose SUBACK still waits is sent the old one first, since that was the last at its SUBSCRIBE.
        """
        topic_name = message.topic_name
        waiting = self._unsettled.get(topic_name)
        if self._fresh and self._comparisons < COMPARISONS_MAX:
            self._keep_replaced(topic_name, waiting)
        self._unsettled[topic_name] = message

    def _keep_replaced(self, topic_name: str, waiting: Publish | None) -> None:
        for session in self._fresh:
            streams = session.streams.fresh()
            self._comparisons += 1 + len(streams)
            for stream in streams:
                if topic_name not in stream.replaced and matches(stream.position.topic_filter, topic_name):
                    stream.replaced[topic_name] = self._last(topic_name, waiting)

    def _last(self, topic_name: str, waiting: Publish | None) -> Publish | None:
        if waiting is not None:
            return waiting if waiting.payload else None
        retained = self._store.retained_get(topic_name)
        return None if retained is None else _as_message(retained)

    def settled(self, message: Publish) -> None:
        """A retained publish has become durable and was sent live, as all before it."""
        if self._unsettled.get(message.topic_name) is message:
            del self._unsettled[message.topic_name]

    def expect(self, session: "Session") -> None:
        """A SUBSCRIBE is being taken; `begin` is called once for it."""
        session.streams.expect()
        self._fresh[session] = self._fresh.get(session, 0) + 1

    def subscribed(self, session: "Session", position: RetainedPosition) -> None:
        """A subscription wants its retained messages, once SUBACK has left."""
        session.streams.add(RetainedStream(position))

    def begin(self, session: "Session") -> list[RetainedStream]:
        """SUBACK has left: what was replaced meanwhile goes out, before what replaces it. Returns the SUBACK's streams.

        Only those: a later SUBSCRIBE may be preceded by retained publishes that the store does not show yet.
        """
        self._fresh[session] -= 1
        if not self._fresh[session]:
            del self._fresh[session]
        if not self._fresh:
            self._comparisons = 0
        begun = session.streams.begin()
        link = session.link
        if link is not None:
            for stream in begun:
                for message in stream.replaced.values():
                    if message is not None:
                        self._send(session, link, message, stream.position.qos)
                stream.replaced.clear()
        return begun

    def send_first(self, session: "Session", link: Link, count: int) -> None:
        """The first pieces of `count` streams follow their SUBACK at once, so few messages come without delay."""
        for _ in range(min(count, FIRST_PIECES_A_TURN - self._first_pieces)):
            if self._turn_bytes >= BYTES_A_TURN or not session.streams.flow():
                break
            self._first_pieces += 1
            if not self._send_piece(session, link):
                break
        self.ready(session)

    def ready(self, session: "Session") -> None:
        """A session may have room for more of its retained messages."""
        if session.streams.flow():
            self._ready[session] = None

    def send_pieces(self) -> bool:
        """One piece for each session that is ready, the longest waiting first. True: there is more to do at once."""
        self._first_pieces = 0
        self._turn_bytes = 0
        if not self._ready:
            return False
        for _ in range(min(PIECES_A_TURN, len(self._ready))):
            if self._turn_bytes >= BYTES_A_TURN:
                break
            session = next(iter(self._ready))
            del self._ready[session]
            link = session.link
            if link is not None and session.streams.flow() and self._send_piece(session, link):
                self.ready(session)
        return bool(self._ready)

    def _send_piece(self, session: "Session", link: Link) -> bool:
        """False: the client must read or acknowledge first."""
        stream = session.streams.first()
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
            self._send(session, link, _as_message(retained), granted)
        self._turn_bytes += stream.piece_cost_bytes
        if granted and outbound.queue is not None:
            self._store.append_position(session.session_id, session.client_id, stream.position, stream.done)
        if stream.done:
            session.streams.finish(stream)
        return True

    def _send(self, session: "Session", link: Link, message: Publish, granted: int) -> None:
        qos = min(message.qos, granted)
        outbound = session.outbound
        if qos == 0:
            link.deliver(Delivery(message, 0, True))
        elif outbound.queue is not None:
            if outbound.accept(message, -1, qos, True):
                self._held.append(HeldOffer(session, message, qos))
        else:
            outbound.offer(link, message, qos, True)


def _as_message(retained: Retained) -> Publish:
    return Publish(retained.topic_name, retained.payload, retained.qos, True, False, 0, retained.properties)
