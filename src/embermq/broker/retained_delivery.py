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
   kept with the stream (`replaced`) and sent right behind SUBACK, before the new one. The comparisons that this takes
   are bounded (`comparisons_max`); beyond the bound such a subscription gets only what is new.
5. The failing disk. While nothing can be made durable, a client whose session is not stored is answered at once
   (it may be the one that reads `$SYS` to see what is wrong), so rule 2 does not hold: retained messages that were
   taken before the SUBSCRIBE may be pending, and the store cannot show them. Such a subscription is added to the
   receivers of each pending PUBLISH, and its `before_offset` is that of the oldest one (`live_from`): it gets them
   live.

A stream holds a position, not a copy, so it can outlive its connection, and a million retained messages take no memory.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, final

from embermq.broker.effects import Effects
from embermq.broker.link import Link
from embermq.broker.queues.offers import OfferEffect
from embermq.broker.runs.deliveries import run_places
from embermq.broker.runs.retained import send_retained
from embermq.broker.shortcuts import deliver_next
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import Delivery, Publish
from embermq.protocol.topics import has_wildcard, matches
from embermq.store.interface import Retained, RetainedPiece, RetainedPosition, Store

if TYPE_CHECKING:
    from embermq.broker.routes import Subscription
    from embermq.broker.session import Session

PIECE_MESSAGES: Final = 128
"""How many retained messages one client gets before it is another client's turn."""
LONE_PIECE_MESSAGES: Final = 1_024
"""The same while no other client waits for its turn: a piece has its own cost."""
PIECE_BYTES: Final = 1024 * 1024
"""About how many bytes of topic names and payloads one piece holds; a message that is larger is a piece of its own."""
PIECE_SEEKS: Final = 256
"""How many topics that do not match are passed over for one piece: `+/x` may match none of a million."""
SEEK_BYTES: Final = 4 * 1024
"""One seek takes about as long as reading this many bytes."""
PIECES_A_TURN: Final = 16
"""How many pieces one turn may send, so that live messages are not delayed for long."""
FIRST_PIECES_A_TURN: Final = 256
"""How many first pieces follow their SUBACK in the same turn; one SUBSCRIBE may ask for thousands."""
BYTES_A_TURN: Final = 4 * 1024 * 1024
"""How many bytes of payload, or seeks that take as long, a turn may read from the store."""
BUSY_BYTES_A_TURN: Final = BYTES_A_TURN // 4
"""The same while effects of durable messages wait for the next turns: these wait in one line, for all clients."""
COMPARISONS_MAX: Final = 100_000
"""How often retained publishes are compared with topic filters whose SUBACK is pending."""


def read_piece(store: Store, topic_filter: str, after_topic_name: str, limit: int = PIECE_MESSAGES) -> RetainedPiece:
    """The next retained messages that a topic filter matches, within the bounds of a piece."""
    if has_wildcard(topic_filter):
        return store.retained_piece(topic_filter, after_topic_name, limit, PIECE_BYTES, PIECE_SEEKS)
    only = store.retained_get(topic_filter)
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
        stream.is_dropped = True
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


@final
class RetainedDelivery:
    """The streams of all sessions, served in turn, a piece each."""

    __slots__ = (
        "_store",
        "_effects",
        "_with_shortcuts",
        "_comparisons_max",
        "_ready",
        "_pending_publishes",
        "_pending_subacks",
        "_comparisons",
        "_first_pieces",
        "_turn_bytes",
        "_turn_bytes_max",
    )

    def __init__(
        self, store: Store, effects: Effects, with_shortcuts: bool, comparisons_max: int = COMPARISONS_MAX
    ) -> None:
        self._store: Final = store
        self._effects: Final = effects
        self._with_shortcuts: Final = with_shortcuts
        self._comparisons_max: Final = comparisons_max
        self._ready: dict[Session, None] = {}
        self._pending_publishes: dict[str, Publish] = {}  # by topic name, the newest that is not durable yet
        self._pending_subacks: dict[Session, int] = {}  # how many
        self._comparisons = 0  # since no SUBACK was pending
        self._first_pieces = 0  # of this turn
        self._turn_bytes = 0  # read from the store in this turn
        self._turn_bytes_max = BYTES_A_TURN

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
                    stream.replaced[topic_name] = self._last(topic_name)

    def _last(self, topic_name: str) -> Publish | None:
        pending = self._pending_publishes.get(topic_name)
        if pending is not None:
            return pending if pending.payload else None
        retained = self._store.retained_get(topic_name)
        return None if retained is None else as_message(retained)

    def publish_durable(self, message: Publish) -> None:
        """A retained PUBLISH has become durable and was sent live, as all before it."""
        if self._pending_publishes.get(message.topic_name) is message:
            del self._pending_publishes[message.topic_name]

    # -- subscriptions: rules 1, 2 and 5 ---------------------------------------------------------------------------

    def subscribe_pending(self, session: "Session") -> None:
        """A SUBSCRIBE is being taken; `start` is called once for it."""
        session.streams.subscribe_pending()
        self._pending_subacks[session] = self._pending_subacks.get(session, 0) + 1

    def live_from(self, subscription: "Subscription", is_at_once: bool) -> int:
        """From which offset on messages are live for a new subscription; with `is_at_once` see rule 5."""
        offset = self._store.next_offset()
        if is_at_once:
            for effect in self._effects.pending_publishes():
                offset = min(offset, effect.offset)
                effect.include(subscription)
        return offset

    def start(self, session: "Session") -> list[RetainedStream]:
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

    def send_first(self, session: "Session", link: Link, count: int) -> None:
        """The first pieces of `count` streams follow their SUBACK at once, so a few messages come without delay."""
        for _ in range(min(count, FIRST_PIECES_A_TURN - self._first_pieces)):
            if self._turn_bytes >= self._turn_bytes_max or not session.streams.is_flowing():
                break
            self._first_pieces += 1
            if not self._send_piece(session, link, PIECE_MESSAGES):
                break
        self.resume(session)

    def resume(self, session: "Session") -> None:
        """A client may be able to take more of its retained messages."""
        if session.streams.is_flowing():
            self._ready[session] = None

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

    def _send_piece(self, session: "Session", link: Link, limit: int) -> bool:
        """False: the client must read or acknowledge first."""
        stream = session.streams.first()
        outbound = session.outbound
        granted = stream.position.qos
        if granted:
            limit = min(limit, outbound.space())
            # A piece ends where packet identifiers begin again, so that it can be a run.
            limit = min(limit, run_places(outbound) or limit)
        if limit <= 0 or not link.has_room():
            return False
        before = stream.position.after_topic_name
        piece = stream.take(self._store, limit)
        self._turn_bytes += stream.piece_cost_bytes
        ids = session.subscription_ids(stream.position.topic_filter)
        has_general_path = not self._with_shortcuts or bool(self._pending_publishes)
        if has_general_path or not send_retained(session, link, piece, stream.position, ids):
            self._send_each(session, link, piece.found(), stream, before)
        if granted and outbound.queue is not None:
            self._store.append_position(session.session_id, session.client_id, stream.position, stream.is_done)
        if stream.is_done:
            session.streams.finish(stream)
        return True

    def _send_each(
        self, session: "Session", link: Link, found: list[Retained], stream: RetainedStream, before: str
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

    def _send(self, session: "Session", link: Link, message: Publish, position: RetainedPosition) -> None:
        qos = min(message.qos, position.qos)
        outbound = session.outbound
        ids = session.subscription_ids(position.topic_filter)
        if qos == 0:
            link.deliver(Delivery(message, 0, True, False, 0, ids))
        elif outbound.queue is not None:
            if outbound.accept(message, -1, qos, True, ids):
                self._effects.add(OfferEffect(session, message, qos, True, ids))
        elif not self._with_shortcuts or not deliver_next(outbound, link, message, qos, True, ids):
            outbound.offer(link, message, qos, True, ids)


def as_message(retained: Retained) -> Publish:
    """A retained message as it is sent."""
    properties = retained.properties
    expires_us = message_expires_us(properties, retained.timestamp_us) if properties else 0
    return Publish(retained.topic_name, retained.payload, retained.qos, True, False, 0, properties, expires_us)
