"""Sending a message of a history subscription: when its client can take one, and how it gets it.

Owns: the way of such a message into the link or the session's queue.
"""

from typing import Final, final

from embermq.broker.counters import Counters
from embermq.broker.effects import Effects, OfferEffect
from embermq.broker.history.stamp import stamped
from embermq.broker.history.stream import HistoryStream
from embermq.broker.link import Link
from embermq.broker.session import Session
from embermq.protocol.packets import Delivery, Publish
from embermq.store.history.pieces import HistoryReads

PIECE_MESSAGES: Final = 256
"""How many messages one piece has at most."""


@final
class HistorySender:
    """Sends messages to the clients of history streams."""

    __slots__ = ("_reads", "_counters", "_effects")

    def __init__(self, reads: HistoryReads | None, counters: Counters, effects: Effects) -> None:
        self._reads: Final = reads
        self._counters: Final = counters
        self._effects: Final = effects

    def now_us(self) -> int:
        """The timestamp of a record that is appended now."""
        return self._reads.now_us() if self._reads is not None else 0

    def limit(self, stream: HistoryStream) -> int:
        """How many messages the client can take now; 0 if it is worth waiting until it can take more."""
        session = stream.subscription.session
        link = session.link
        if link is None or not link.has_room():
            return 0
        if stream.subscription.qos == 0:
            return PIECE_MESSAGES
        outbound = session.outbound
        space = outbound.space()
        if space < min(PIECE_MESSAGES, outbound.window // 4) and outbound.owed() > 0:
            return 0  # each acknowledgement would cause a read
        return min(PIECE_MESSAGES, space)

    def has_place(self, stream: HistoryStream, qos: int) -> bool:
        """Whether the client can take a message of a QoS now."""
        session = stream.subscription.session
        link = session.link
        if link is None or not link.has_room():
            return False
        return qos == 0 or stream.subscription.qos == 0 or session.outbound.space() > 0

    def send(
        self, stream: HistoryStream, message: Publish, offset: int, timestamp_us: int, may_refer: bool = True
    ) -> None:
        """Send a message that the client has a place for. `may_refer`: a persistent queue may refer to its record."""
        subscription = stream.subscription
        session = subscription.session
        link = session.link
        if link is None:
            return
        sent = stamped(message, offset, timestamp_us, self.now_us(), stream.has_properties)
        qos = min(message.qos, subscription.qos)
        retain = stream.asked.is_as_of or (message.retain and subscription.retain_as_published)
        self._counters.history_messages += 1
        if qos == 0:
            link.deliver(Delivery([sent], 0, retain, False, 0, subscription.ids))
            return
        if not may_refer or sent.expires_us != message.expires_us:
            offset = -1
        self._offer(session, link, sent, offset, qos, retain, subscription.ids)

    def _offer(
        self,
        session: Session,
        link: Link,
        message: Publish,
        offset: int,
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
    ) -> None:
        outbound = session.outbound
        if outbound.queue is not None:
            if outbound.accept(message, offset, qos, retain, ids):
                self._effects.add(OfferEffect(session, message, qos, retain, ids))
        else:
            outbound.offer(link, [message], qos, retain, ids)
