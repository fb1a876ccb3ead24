"""Retained messages for a new subscription (3.1.1 section 3.3.1.3): never cut short, as fast as the client reads.

Owns: how far each subscription's retained messages have been sent, and whose turn it is.

The rule: linearity. For each topic name a subscription first gets, with RETAIN 1, the message that was retained when
the server took the SUBSCRIBE, and then, with RETAIN 0, every message that the server took later. Never an older message
after a newer one, never one message both ways. The one freedom: a retained message that is replaced before its turn in
a long delivery may be left out, because the newer one has been sent live.

How the rule is kept without a snapshot of the retained set, which may have millions of messages:

1. `before_offset`. The topic filter enters the trie when SUBSCRIBE is taken, so from this offset on every message is
   live for it. A stream reads the store later, piece by piece, and skips every retained message whose offset is not
   below: that one came live.
2. SUBACK waits for its commit, and the stream starts behind it. What was retained before the SUBSCRIBE is in the same
   commit group or an earlier one, so the store shows it then.
3. Pending publishes. Until a retained PUBLISH is durable the store still shows the message before it. The new one will
   be sent live to every subscription, and for a persistent session it is already in the queue. A stream that read the
   old one now would add it behind the new one. So streams skip the topic names of pending publishes.
4. Replaced messages. The opposite holds for a subscription whose SUBACK is still pending: at its SUBSCRIBE the old
   message was the last one (MQTT-3.3.1-6), but its stream reads the store too late to see it. So the old message is
   kept with the stream (`replaced`) and sent right behind SUBACK, before the new one. A session with a stored queue has
   the old message put there at once, since the new one follows there before SUBACK. The comparisons that this takes are
   bounded (`comparisons_max`); beyond the bound such a subscription gets only what is new.
5. The failing disk. While nothing can be made durable, a client whose session is not stored is answered at once
   (it may be the one that reads `$SYS` to see what is wrong), so rule 2 does not hold: retained messages that were
   taken before the SUBSCRIBE may be pending, and the store cannot show them. Such a subscription is added to the
   receivers of each pending PUBLISH, and its `before_offset` is that of the oldest one (`MessageDelivery.live_from`):
   it gets them live.

A stream holds a position, not a copy, so it can outlive its connection, and a million retained messages take no memory.
"""

from typing import Final, final

from embermq.broker.context import Context
from embermq.broker.effects import Effects, OfferEffect
from embermq.broker.link import Link
from embermq.broker.retained_streams import PIECE_MESSAGES, RetainedStream
from embermq.broker.session import Session
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import Columns, Delivery, Publish
from embermq.protocol.topics import matches
from embermq.store.interface import MIXED, Retained, RetainedPiece
from embermq.store.records import PositionMoved, RetainedPosition

LONE_PIECE_MESSAGES: Final = 1_024
"""How many messages a piece has while no other client waits for its turn: a piece has its own cost."""
COLUMNS_BYTES_MAX: Final = 256 * 1024
"""A piece with more bytes is sent message by message: those that the client does not read are not written."""
PIECES_A_TURN: Final = 16
"""How many pieces one turn may send, so that live messages are not delayed for long."""
FIRST_PIECES_A_TURN: Final = 256
"""How many first pieces follow their SUBACK in the same turn; one SUBSCRIBE may ask for thousands."""
BYTES_A_TURN: Final = 4 * 1024 * 1024
"""How many bytes of payload, or seeks that take as long, a turn may read from the store."""
BUSY_BYTES_A_TURN: Final = BYTES_A_TURN // 4
"""The same while effects of durable messages wait for the next turns: these wait in one line, for all clients."""
PACE_MS: Final = 1_000
"""The time in which a client with a rate gets that many messages, all at once if it reads them."""
COMPARISONS_MAX: Final = 100_000
"""How often retained publishes are compared with topic filters whose SUBACK is pending."""


@final
class RetainedDelivery:
    """The streams of all sessions, served in turn, a piece each."""

    def __init__(self, context: Context, effects: Effects, comparisons_max: int = COMPARISONS_MAX) -> None:
        self._store: Final = context.store
        self._access: Final = context.access
        self._effects: Final = effects
        self._clock: Final = context.clock
        self._counters: Final = context.counters
        self._comparisons_max: Final = comparisons_max
        self._ready: dict[Session, None] = {}
        self._pending_publishes: dict[str, Publish] = {}  # by topic name, the newest that is not durable yet
        self._pending_subacks: dict[Session, int] = {}  # how many
        self._comparisons = 0  # since no SUBACK was pending
        self._first_pieces = 0  # of this turn
        self._turn_bytes = 0  # read from the store in this turn
        self._turn_bytes_max = BYTES_A_TURN
        # How many messages clients with a rate have got, and when they may get more.
        self._paced: Final[dict[Session, tuple[int, int]]] = {}

    # -- retained publishes: rules 3 and 4 -------------------------------------------------------------------------

    def publish_pending(self, message: Publish) -> None:
        """A retained PUBLISH is being taken. Until it is durable the store shows the message before it."""
        topic_name = message.topic_name
        if self._pending_subacks and self._comparisons < self._comparisons_max:
            self._keep_replaced(topic_name)
        self._pending_publishes[topic_name] = message

    def _keep_replaced(self, topic_name: str) -> None:
        for session in self._pending_subacks:
            streams = session.streams.pending()
            self._comparisons += 1 + len(streams)
            for stream in streams:
                if topic_name not in stream.replaced and matches(stream.position.topic_filter, topic_name):
                    message = self._last(topic_name)
                    if message is not None and session.outbound.queue is not None:
                        qos = min(message.qos, stream.position.qos)
                        if qos:
                            self._queue(session, message, qos, stream.position)
                            message = None
                    stream.replaced[topic_name] = message

    def _last(self, topic_name: str) -> Publish | None:
        pending = self._pending_publishes.get(topic_name)
        if pending is not None:
            return pending if pending.payload else None
        retained = self._store.retained.get(topic_name)
        return None if retained is None else as_message(retained)

    def publish_durable(self, message: Publish) -> None:
        """A retained PUBLISH has become durable and was sent live, as all before it."""
        if self._pending_publishes.get(message.topic_name) is message:
            del self._pending_publishes[message.topic_name]

    # -- subscriptions: rules 1, 2 and 5 ---------------------------------------------------------------------------

    def subscribe_pending(self, session: Session) -> None:
        """A SUBSCRIBE is being taken; `start` is called once for it."""
        session.streams.subscribe_pending()
        self._pending_subacks[session] = self._pending_subacks.get(session, 0) + 1

    def start(self, session: Session) -> list[RetainedStream]:
        """SUBACK has been sent: what was replaced in the meantime follows. Returns the streams of this SUBACK.

        Only those: a later SUBSCRIBE may be preceded by retained publishes that the store does not show yet.
        """
        self._pending_subacks[session] -= 1
        if not self._pending_subacks[session]:
            del self._pending_subacks[session]
        if not self._pending_subacks:
            self._comparisons = 0
        started = session.streams.start()
        link = session.link
        if link is not None:
            for stream in started:
                for message in stream.replaced.values():
                    if message is not None:
                        self._send(session, link, message, stream.position)
                stream.replaced.clear()
        return started

    # -- pieces ----------------------------------------------------------------------------------------------------

    def send_first(self, session: Session, link: Link, count: int) -> None:
        """The first pieces of `count` streams follow their SUBACK at once, so a few messages come without delay."""
        for _ in range(min(count, FIRST_PIECES_A_TURN - self._first_pieces)):
            if self._turn_bytes >= self._turn_bytes_max or not session.streams.is_flowing():
                break
            self._first_pieces += 1
            if not self._send_piece(session, link, PIECE_MESSAGES):
                break
        self.resume(session)

    def resume(self, session: Session) -> None:
        """A client may be able to take more of its retained messages."""
        if session.streams.is_flowing():
            self._ready[session] = None

    def tick(self, now_ms: int) -> None:
        """Clients with a rate may get more, a second after the first that they got."""
        for session in [session for session, (_, until_ms) in self._paced.items() if now_ms >= until_ms]:
            del self._paced[session]
            self.resume(session)

    def send_pieces(self) -> bool:
        """One piece for each session that is ready, the longest waiting first. True: the next turn has work already."""
        self._first_pieces = 0
        self._turn_bytes = 0
        self._turn_bytes_max = BUSY_BYTES_A_TURN if self._effects.must_release() else BYTES_A_TURN
        if not self._ready:
            return False
        limit = PIECE_MESSAGES if len(self._ready) > 1 else LONE_PIECE_MESSAGES
        for _ in range(min(PIECES_A_TURN, len(self._ready))):
            if self._turn_bytes >= self._turn_bytes_max:
                break
            session = next(iter(self._ready))
            del self._ready[session]
            link = session.link
            if link is not None and session.streams.is_flowing() and self._send_piece(session, link, limit):
                self.resume(session)
        return bool(self._ready)

    def _send_piece(self, session: Session, link: Link, limit: int) -> bool:
        """False: the client must read or acknowledge first."""
        stream = session.streams.first()
        outbound = session.outbound
        granted = stream.position.qos
        if granted:
            limit = min(limit, outbound.space())
        rate_max = link.retained_rate_max()
        if rate_max:
            limit = min(limit, rate_max - self._paced[session][0] if session in self._paced else rate_max)
        if limit <= 0 or not link.has_room():
            return False
        before = stream.position.after_topic_name
        piece = stream.take(self._store, limit)
        self._turn_bytes += stream.piece_cost_bytes
        qos = self._columns_qos(session, link, piece, stream.position)
        if qos == MIXED:
            self._send_each(session, link, piece.found(), stream, before)
        else:
            self._send_columns(session, link, piece, qos, stream, before)
        if rate_max:
            self._count_paced(session, len(piece), rate_max)
        if granted and outbound.queue is not None:
            self._store.append(PositionMoved(session.session_id, session.client_id, stream.position, stream.is_done))
        if stream.is_done:
            session.streams.finish(stream)
        return True

    def _count_paced(self, session: Session, count: int, rate_max: int) -> None:
        before, until_ms = self._paced.get(session, (0, self._clock.now_ms + PACE_MS))
        self._paced[session] = (before + count, until_ms)
        if before + count >= rate_max:
            self._counters.retained_slowed_by_rate += 1

    def _columns_qos(self, session: Session, link: Link, piece: RetainedPiece, position: RetainedPosition) -> int:
        """The QoS at which a piece can be sent as the store gives it, without packets; `MIXED` if it cannot.

        If the messages are small together, none has properties or is pending again, all are sent alike, and the client
        takes packets of every size.
        """
        if not len(piece) or piece.size_bytes > COLUMNS_BYTES_MAX or self._pending_publishes:
            return MIXED
        if link.maximum_packet_size or session.subscription_ids(position.topic_filter):
            return MIXED
        if not self._access.reaches_all(session.identity, position.topic_filter):
            return MIXED
        qos = piece.sent_qos(position.before_offset, position.qos)
        return MIXED if qos and session.outbound.queue is not None else qos

    def _send_columns(
        self, session: Session, link: Link, piece: RetainedPiece, qos: int, stream: RetainedStream, before: str
    ) -> None:
        """Send a piece as one run, as far as the client reads and its window allows."""
        columns = Columns(piece.topics(), piece.payloads())
        count = len(columns.topics)
        taken = 0
        if qos == 0:
            taken = link.deliver(Delivery([], 0, True, columns=columns))
        else:
            while taken < count:
                rest = Columns(columns.topics[taken:], columns.payloads[taken:]) if taken else columns
                sent = session.outbound.send_columns(link, rest, qos)
                if not sent:
                    break
                taken += sent
        if taken < count:
            stream.rewind(columns.topics[taken - 1].decode() if taken else before)

    def _send_each(
        self, session: Session, link: Link, found: list[Retained], stream: RetainedStream, before: str
    ) -> None:
        """Send the messages of a piece that follow `before`, as far as the client reads, without what it gets live."""
        for retained in found:
            if retained.offset >= stream.position.before_offset:
                continue
            if not link.has_room():
                stream.rewind(before)
                break
            before = retained.topic_name
            if before not in self._pending_publishes:
                self._send(session, link, as_message(retained), stream.position)

    def _send(self, session: Session, link: Link, message: Publish, position: RetainedPosition) -> None:
        qos = min(message.qos, position.qos)
        outbound = session.outbound
        if qos and outbound.queue is not None:
            self._queue(session, message, qos, position)
            return
        if not self._access.reaches(session.identity, message.topic_name):
            return
        ids = session.subscription_ids(position.topic_filter)
        if qos == 0:
            link.deliver(Delivery([message], 0, True, False, 0, ids))
        else:
            outbound.offer(link, [message], qos, True, ids)

    def _queue(self, session: Session, message: Publish, qos: int, position: RetainedPosition) -> None:
        """Add a message to the stored queue of a session."""
        ids = session.subscription_ids(position.topic_filter)
        if self._access.reaches(session.identity, message.topic_name) and session.outbound.accept(
            message, -1, qos, True, ids
        ):
            self._effects.add(OfferEffect(session, message, qos, True, ids))


def as_message(retained: Retained) -> Publish:
    """A retained message as it is sent."""
    properties = retained.properties
    expires_us = message_expires_us(properties, retained.timestamp_us) if properties else 0
    return Publish(retained.topic_name, retained.payload, retained.qos, True, False, 0, properties, expires_us)
