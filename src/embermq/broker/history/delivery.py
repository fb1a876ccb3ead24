"""History subscriptions: what was, to clients that ask for it, as fast as they read (docs/history.md).

Owns: all history streams, whose turn it is, and what each client gets next.
Never: reading. The store reads pieces on another thread; here they are asked for, and sent when they have come.

A stream has at most one piece asked for, and only when its client can take messages. At most `READS_MAX` pieces of the
log, as many of the archive and `PAST_READS_MAX` of retained sets that only the archive has are asked for at a time, the
longest waiting stream first, and a turn sends at most `PIECES_A_TURN` of them. So neither a client that does not read
nor a thousand that do take more than a bounded part of the memory and of a turn.

A replay without an end goes through these states: pieces of the log until everything durable was read; then a place in
the trie is added (`LiveTail`), at a fence; pieces of the log up to the fence; then live messages. If its client falls
behind, it goes back to the log, and begins again.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from embermq.broker.admission import Admission
from embermq.broker.context import Context
from embermq.broker.effects import Effect, Effects
from embermq.broker.history.history_filter import HistoryFilter, read_history_filter
from embermq.broker.history.sender import HistorySender
from embermq.broker.history.stream import BLOCKED, ENDED, FOLLOWING, LIVE, PENDING, READING, READY, HistoryStream, Lane
from embermq.broker.history.tail import WAITING_MESSAGES_MAX, LiveTail
from embermq.broker.retained_delivery import as_message
from embermq.broker.session import Session, subscription_of
from embermq.instants import utc_text
from embermq.protocol.packets import SubscriptionRequest
from embermq.protocol.reasons import ReasonCode
from embermq.store.history.pieces import HistoryPiece, LogSpan, RetainedSpan
from embermq.store.interface import StoreError

PIECE_BYTES: Final = 256 * 1024
"""About how many bytes of messages one piece has; a larger message is a piece of its own."""
AS_OF_TOPICS: Final = 32
"""How many topics one read of a retained set looks at: the thread that reads has the interpreter while it does."""
READS_MAX: Final = 4
"""How many pieces of the log, and of the archive, are asked for at a time."""
PAST_READS_MAX: Final = 64
"""How many pieces of retained sets that only the archive has: it is quicker to answer those of one time together."""
PIECES_A_TURN: Final = 2
"""How many pieces one turn sends, so that live messages are not delayed for long."""
JOIN_AGAIN_US: Final = 1_000_000
"""A replay that has left the live messages stays with the log for so long: each change empties the cache of routes."""
NEAR_PART: Final = 4
"""A persistent session's queue refers to records that keep less than this part of `limits.queue_log_bytes_max`."""


@final
class StartEffect(Effect):
    """SUBACK has been sent: the streams of its history subscriptions begin."""

    __slots__ = ("_history", "_streams")

    def __init__(self, history: "HistoryDelivery", streams: list[HistoryStream]) -> None:
        super().__init__(weight=len(streams))
        self._history: Final = history
        self._streams: Final = streams

    def release(self) -> None:
        self._history.start(self._streams)


@final
class HistoryDelivery:
    """The history streams of all clients."""

    def __init__(
        self,
        context: Context,
        admission: Admission,
        effects: Effects,
        end_connection: Callable[[Session, ReasonCode, str], None],
        tail_messages_max: int = WAITING_MESSAGES_MAX,
    ) -> None:
        """`end_connection` ends that of a client, for a reason."""
        self._store: Final = context.store
        self._reads: Final = context.store.history.reads()
        self._access: Final = context.access
        self._admission: Final = admission
        self._limits: Final = context.limits
        self._counters: Final = context.counters
        self._sender: Final = HistorySender(self._reads, context.counters, effects)
        self._routes: Final = context.routes
        self._wake: Final = context.wake
        self._end_connection: Final = end_connection
        self._tail_messages_max: Final = tail_messages_max
        self._streams = 0
        self._by_session: Final[dict[Session, dict[str, HistoryStream]]] = {}  # by filter
        self._tails: Final[dict[HistoryStream, LiveTail]] = {}
        self._of_log: Final = Lane(False, READS_MAX)
        self._of_archive: Final = Lane(True, READS_MAX)
        self._of_past: Final = Lane(True, PAST_READS_MAX)
        self._following: Final[dict[HistoryStream, None]] = {}
        self._arrived: Final[deque[tuple[HistoryStream, HistoryPiece | None, StoreError | None]]] = deque()
        self._joining = 0  # tails whose fence the log part has not reached
        self._followed_offset = 0  # how much was durable when those that follow were last looked at

    @property
    def reading(self) -> int:
        """How many pieces were asked for and not taken yet."""
        return self._of_log.reading + self._of_archive.reading + self._of_past.reading

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscribe(
        self, session: Session, request: SubscriptionRequest, started: list[HistoryStream]
    ) -> tuple[int, str]:
        """A history subscription of a SUBSCRIBE: the reason code, and why it is refused; its stream is `started`."""
        text = request.topic_filter
        reads = self._reads
        if reads is None:
            detail = "the store is in memory and keeps no history"
            return self._refuse(session, text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, detail)
        if self._store.failing():
            detail = "the store cannot write now, so its history is not complete"
            return self._refuse(session, text, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, detail)
        now_us = reads.now_us()
        try:
            asked = read_history_filter(text, now_us)
        except ValueError as error:
            return self._refuse(session, text, ReasonCode.TOPIC_FILTER_INVALID, str(error))
        existing = self._stream_of(session, text)
        refusal = self._admission.subscription_refusal(session, asked.topic_filter, existing is not None, text)
        if refusal is not None:
            return refusal.reason, refusal.detail
        if existing is None:
            full = self._full(session)
            if full:
                return self._refuse(session, text, ReasonCode.QUOTA_EXCEEDED, full)
        begins_us = reads.retained_begins_us() if asked.is_as_of else reads.log_begins_us()
        if 0 < asked.from_us < begins_us:
            detail = f"the history begins at {utc_text(begins_us)}"
            return self._refuse(session, text, ReasonCode.TOPIC_FILTER_INVALID, detail)
        if existing is not None:
            self.end(existing)
        started.append(self._add(session, request, asked, now_us))
        return request.qos, ""

    def _refuse(self, session: Session, text: str, reason: ReasonCode, detail: str) -> tuple[int, str]:
        refusal = self._admission.refuse_subscription(session.client_id, text, reason, detail)
        return refusal.reason, refusal.detail

    def _full(self, session: Session) -> str:
        if self._limits.history_subscriptions_max == 0:
            return "limits.history_subscriptions_max is 0"
        if session.history_subscriptions >= self._limits.history_subscriptions_max:
            return "limits.history_subscriptions_max is reached"
        if self._streams >= self._limits.all_history_subscriptions_max:
            return "limits.all_history_subscriptions_max is reached"
        return ""

    def _add(self, session: Session, request: SubscriptionRequest, asked: HistoryFilter, now_us: int) -> HistoryStream:
        subscription = subscription_of(session, request)
        link = session.connection()
        has_properties = link is not None and link.has_properties()
        fence_offset = self._store.next_offset()
        stream = HistoryStream(
            subscription, asked, has_properties, self._of_log, fence_offset, now_us, self._piece_has_come
        )
        self._by_session.setdefault(session, {})[request.topic_filter] = stream
        session.count_history(1)
        session.streams.count_waiting(1)
        self._streams += 1
        self._counters.history_subscriptions = self._streams
        return stream

    def start(self, streams: list[HistoryStream]) -> None:
        """SUBACK has been sent."""
        for stream in streams:
            if stream.state == PENDING:
                stream.make_ready()

    def unsubscribe(self, session: Session, text: str) -> bool:
        """Whether there was such a history subscription, which has ended now."""
        stream = self._stream_of(session, text)
        if stream is None:
            return False
        self.end(stream)
        return True

    def connection_lost(self, session: Session) -> None:
        """A connection has ended, and with it its history subscriptions."""
        for stream in self.streams_of(session):
            self.end(stream)

    def _stream_of(self, session: Session, text: str) -> HistoryStream | None:
        streams = self._by_session.get(session)
        return None if streams is None else streams.get(text)

    def streams_of(self, session: Session) -> list[HistoryStream]:
        """The history streams of a client."""
        return list(self._by_session[session].values()) if session.history_subscriptions else []

    def end(self, stream: HistoryStream) -> None:
        """A stream has sent everything, or is not wanted any more."""
        if stream.state == ENDED:
            return
        if stream.state == READING:
            stream.lane.reading -= 1
        self._remove_tail(stream)
        session = stream.subscription.session
        if stream.state != LIVE:
            session.streams.count_waiting(-1)
        stream.state = ENDED
        stream.is_cancelled = True
        stream.lane.ready.pop(stream, None)
        self._following.pop(stream, None)
        streams = self._by_session[session]
        del streams[stream.subscription.topic_filter]
        if not streams:
            del self._by_session[session]
        session.count_history(-1)
        self._streams -= 1
        self._counters.history_subscriptions = self._streams

    # -- pieces --------------------------------------------------------------------------------------------------

    def resume(self, session: Session) -> None:
        """A client may be able to take more."""
        for stream in self.streams_of(session):
            if stream.state == BLOCKED:
                stream.make_ready()

    def send_pieces(self) -> bool:
        """At the end of a turn: send pieces that have come, and ask for others. True: the next turn has work."""
        if not self._streams:
            return False
        for _ in range(min(PIECES_A_TURN, len(self._arrived))):
            stream, piece, error = self._arrived.popleft()
            if stream.state != ENDED:
                self._take(stream, piece, error)
        reads = self._reads
        assert reads is not None
        if self._following:
            self._look_at_following(reads.durable_offset())
        for lane in (self._of_log, self._of_archive, self._of_past):
            while (ready := lane.next()) is not None:
                self._ask(ready)
        return bool(self._arrived)

    def _look_at_following(self, durable_offset: int) -> None:
        if self._joining:
            # What is before a fence may be QoS 0 that no effect waits for: it would be written only when it is old.
            self._store.commit_in_background(self._wake)
        if durable_offset > self._followed_offset:
            self._followed_offset = durable_offset
            for stream in list(self._following):
                if stream.offset < durable_offset:
                    del self._following[stream]
                    stream.make_ready()

    def _ask(self, stream: HistoryStream) -> None:
        limit = self._sender.limit(stream)
        if limit <= 0:
            stream.state = BLOCKED
            return
        reads = self._reads
        assert reads is not None
        stream.state = READING
        stream.lane.reading += 1
        asked = stream.asked
        if asked.is_as_of:
            topics = min(limit, AS_OF_TOPICS)
            span = RetainedSpan(
                asked.topic_filter, asked.from_us, stream.before_offset, stream.after_topic_name, topics, PIECE_BYTES
            )
            reads.read_retained(stream, span, stream.lane.is_archived)
        else:
            log_span = LogSpan(
                asked.topic_filter,
                stream.offset,
                asked.from_us,
                stream.before_offset,
                stream.before_us,
                limit,
                PIECE_BYTES,
            )
            reads.read_log(stream, log_span, stream.lane.is_archived)

    def _piece_has_come(self, stream: HistoryStream, piece: HistoryPiece | None, error: StoreError | None) -> None:
        self._arrived.append((stream, piece, error))
        self._wake()

    def _take(self, stream: HistoryStream, piece: HistoryPiece | None, error: StoreError | None) -> None:
        stream.lane.reading -= 1
        if piece is not None:
            archived = self._of_past if stream.asked.is_as_of else self._of_archive
            stream.lane = archived if piece.is_archived else self._of_log
        stream.state = READY
        session = stream.subscription.session
        link = session.link
        access = self._access
        if link is None:
            self.end(stream)
        elif error is not None or piece is None:
            self._counters.store_refusals += 1
            self._end_connection(session, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, f"a history subscription: {error}")
        elif not access.grants(session.identity, stream.asked.topic_filter):
            detail = "a history subscription has lost its right to read"
            self._end_connection(session, ReasonCode.NOT_AUTHORIZED, detail)
        elif not self._send(stream, piece):
            stream.state = BLOCKED
        elif piece.is_done:
            self.end(stream)
        elif piece.is_end:
            self._caught_up(stream)
        else:
            stream.make_ready()

    def _send(self, stream: HistoryStream, piece: HistoryPiece) -> bool:
        """False: the client must read or acknowledge first; the rest of the piece is read again then."""
        sent = self._counters.history_messages
        has_sent_all = self._send_messages(stream, piece) and self._send_retained(stream, piece)
        streams = self._by_session.get(stream.subscription.session)
        if streams is not None and stream.state != ENDED and self._counters.history_messages > sent:
            # The client's other streams are before it when there is place again: one piece may take all the place.
            del streams[stream.subscription.topic_filter]
            streams[stream.subscription.topic_filter] = stream
        return has_sent_all

    def _send_messages(self, stream: HistoryStream, piece: HistoryPiece) -> bool:
        if stream.asked.is_as_of:
            return True
        subscription = stream.subscription
        own_id = subscription.session.client_id if subscription.no_local else ""
        is_near = self._is_near(stream, piece)
        for found in piece.messages:
            is_own = subscription.no_local and found.client_id == own_id
            if not is_own and self._access.reaches(subscription.session.identity, found.message.topic_name):
                if not self._sender.has_place(stream, found.message.qos):
                    stream.offset = found.offset
                    return False
                self._sender.send(stream, found.message, found.offset, found.timestamp_us, is_near)
        stream.offset = piece.next_offset
        tail = self._tails.get(stream)
        if tail is not None:
            tail.drop_before(stream.offset)
        return True

    def _send_retained(self, stream: HistoryStream, piece: HistoryPiece) -> bool:
        for retained in piece.retained:
            if self._access.reaches(stream.subscription.session.identity, retained.topic_name):
                if not self._sender.has_place(stream, retained.qos):
                    return False
                self._sender.send(stream, as_message(retained), retained.offset, retained.timestamp_us, False)
            stream.after_topic_name = retained.topic_name
        stream.after_topic_name = piece.after_topic_name
        return True

    def _is_near(self, stream: HistoryStream, piece: HistoryPiece) -> bool:
        """Whether a persistent queue may refer to the records: old ones would count as a long queue."""
        if stream.subscription.session.outbound.queue is None or not piece.messages:
            return True
        reads = self._reads
        assert reads is not None
        kept_bytes = reads.log_bytes_from(piece.messages[0].offset)
        return kept_bytes * NEAR_PART < self._limits.queue_log_bytes_max

    # -- live ----------------------------------------------------------------------------------------------------

    def _caught_up(self, stream: HistoryStream) -> None:
        """Everything that was durable has been sent."""
        tail = self._tails.get(stream)
        if tail is None and not stream.before_offset and self._sender.now_us() >= stream.left_us + JOIN_AGAIN_US:
            tail = self._tails[stream] = LiveTail(
                self.leave, self._sender, self._store, stream, self._tail_messages_max
            )
            self._routes.add_group(tail)
            self._joining += 1
        if tail is not None and stream.offset >= tail.fence_offset:
            self._joining -= 1
            stream.state = LIVE
            stream.subscription.session.streams.count_waiting(-1)
            tail.advance()
        else:
            stream.state = FOLLOWING
            self._following[stream] = None
            self._followed_offset = min(self._followed_offset, stream.offset)

    def leave(self, stream: HistoryStream) -> None:
        """The client does not keep up with the live messages: go on in the log, from the first that it has not got."""
        tail = self._tails.get(stream)
        if tail is None:
            return
        if stream.state == LIVE:
            first_offset = tail.first_offset()
            if first_offset:
                stream.offset = first_offset
            stream.subscription.session.streams.count_waiting(1)
            self._remove_tail(stream)
            stream.make_ready()
            self._wake()
        else:
            self._remove_tail(stream)
        stream.left_us = self._sender.now_us()

    def _remove_tail(self, stream: HistoryStream) -> None:
        tail = self._tails.pop(stream, None)
        if tail is not None:
            if stream.state != LIVE:
                self._joining -= 1
            self._routes.remove_group(tail)
            self._counters.dropped_output_full += tail.end()
