"""Delivery of messages, from the publisher to the receivers (3.1.1 sections 3.3 to 3.7, 4.3 and 4.4).

Owns: the three QoS levels in both directions: a message's record, the queues that it enters, the moment at which it is
delivered, and the acknowledgements from and to clients; for each session the packet identifiers, the window and the
redelivery of what it is owed.
A packet identifier follows from the message's sequence number, so that a crash cannot change it, and identifiers run
out only when a message 65,535 places back is still unacknowledged; then the next one waits.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Access, Identity
from embermq.broker.admission import Admission
from embermq.broker.counters import Counters
from embermq.broker.effects import AcknowledgementEffect, Effects, PublishEffect
from embermq.broker.limits import QUEUE_BYTES_MAX
from embermq.broker.link import Link
from embermq.broker.shortcuts import deliver_next
from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Delivery, Publish, Pubrec
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import Queue, Store, StoreError, packet_id_of

if TYPE_CHECKING:
    from embermq.broker.retained_delivery import RetainedDelivery
    from embermq.broker.routes import Route, Subscription
    from embermq.broker.session import Session

READ_AHEAD: Final = 256
"""How many messages are read from a persistent queue at a time."""


@final
class Outbound:
    """What one session is owed at QoS 1 and 2, from the moment a message is durable until the client acknowledged it.

    `backlog` is the queue of a session without a persistent one; with one it holds only what was read ahead.
    What is in memory, in flight or in the backlog, is bounded in bytes as well as in messages: a few large messages
    take more than many small ones. One message is always sent, however large.
    """

    __slots__ = (
        "queue",
        "sent_before",
        "inflight",
        "backlog",
        "window",
        "resend_ids",
        "fetched",
        "durable",
        "memory_bytes",
        "memory_bytes_max",
        "_length_max",
        "_counters",
        "_acknowledged",
    )

    def __init__(
        self, queue: Queue | None, window: int, length_max: int, counters: Counters, bytes_max: int = QUEUE_BYTES_MAX
    ) -> None:
        self.queue: Final = queue
        self.inflight: Final[dict[int, Delivery]] = {}  # by packet identifier, oldest first
        self.backlog: Final[deque[Delivery]] = deque()
        self.window = window
        # Packet identifiers in flight that the client's new connection has not been sent yet, the next one last.
        self.resend_ids: list[int] = []
        self.fetched = 0  # the newest sequence number in flight or in the backlog, or acknowledged
        self.durable = 0  # the newest sequence number that is durable and may be sent
        self.memory_bytes = 0  # of topic names and payloads in flight and in the backlog
        self.memory_bytes_max: Final = bytes_max
        self._length_max: Final = length_max
        self._counters: Final = counters
        self._acknowledged = 0
        # After a restart: messages up to here may have been sent already, and so are sent with DUP. That can be more
        # than one window: nothing waits for the records of acknowledgements, so a crash may lose those of several.
        self.sent_before = 0
        if queue is not None:
            self.durable = queue.last()
            self.fetched = queue.acknowledged()
            self._acknowledged = self.fetched

    def accept(self, message: Publish, offset: int, qos: int, retain: bool, ids: tuple[int, ...] = ()) -> bool:
        """For a session with a persistent queue: add to it, in the open commit group. False: full, counted."""
        queue = self.queue
        assert queue is not None
        if queue.last() - self._acknowledged >= self._length_max:
            self._counters.dropped_queue_full += 1
            return False
        queue.push(message, offset, qos, retain, ids)
        return True

    def offer(self, link: Link | None, message: Publish, qos: int, retain: bool, ids: tuple[int, ...] = ()) -> None:
        """A message is durable: send it if it is the next one and the client can take it, else let it wait."""
        sequence = self.durable + 1
        packet_id = packet_id_of(sequence)
        is_next = self.fetched == self.durable and not self.backlog and not self.resend_ids
        if self.queue is not None:
            self.durable = sequence
        elif len(self.backlog) < self._length_max and self.memory_bytes < self.memory_bytes_max:
            self.durable = sequence
            self.fetched = sequence
            self.memory_bytes += len(message.topic_name) + len(message.payload)
            self.backlog.append(Delivery(message, qos, retain, False, packet_id, ids, sequence))
        else:
            self._counters.dropped_queue_full += 1
            return
        if link is not None and is_next and packet_id not in self.inflight:
            self.pump(link)

    def pump(self, link: Link) -> None:
        """Send what is owed, as far as the window and the client's reading allow."""
        if self.resend_ids and not self._resend(link):
            return
        while len(self.inflight) < self.window and link.has_room():
            if not self.backlog and not self._read_ahead():
                return
            delivery = self.backlog[0]
            packet_id = delivery.packet_id
            if packet_id in self.inflight:
                return
            self.backlog.popleft()
            if delivery.sequence <= self.sent_before:
                delivery = delivery.repeated()
            self.inflight[packet_id] = delivery
            if delivery.released:
                link.acknowledge(PUBREL, packet_id, 0)
            else:
                link.deliver(delivery)

    def _read_ahead(self) -> bool:
        if self.queue is None or self.fetched >= self.durable or self.memory_bytes >= self.memory_bytes_max:
            return False
        for delivery in self.queue.read(self.fetched, min(READ_AHEAD, self.durable - self.fetched)):
            self.backlog.append(delivery)
            self.memory_bytes += len(delivery.message.topic_name) + len(delivery.message.payload)
        if not self.backlog:
            return False
        self.fetched = self.backlog[-1].sequence
        return True

    def resume(self, link: Link) -> None:
        """A client is back: what it has not acknowledged is sent again, in order, with DUP (MQTT-4.4.0-1)."""
        self.resend_ids = list(reversed(self.inflight))
        self._resend(link)

    def _resend(self, link: Link) -> bool:
        """True: all that was in flight has been sent again. A whole window may be more than a client reads at once."""
        resend_ids = self.resend_ids
        while resend_ids:
            if not link.has_room():
                return False
            packet_id = resend_ids.pop()
            delivery = self.inflight.get(packet_id)
            if delivery is None:
                continue  # acknowledged in the meantime: the client had got it over its last connection
            if delivery.released:
                link.acknowledge(PUBREL, packet_id, 0)
            else:
                if not delivery.dup:
                    delivery = delivery.repeated()
                    self.inflight[packet_id] = delivery
                link.deliver(delivery)
        return True

    def newest_sent(self) -> int:
        """The sequence number of the newest message that has been sent."""
        return self.fetched - len(self.backlog)

    def newest_sent_ever(self) -> int:
        """What a restart must treat as sent: before the last restart more may have been sent than since."""
        return max(self.sent_before, self.newest_sent())

    def owed(self) -> int:
        """How many messages the client has not acknowledged, sent or not."""
        newest = self.durable if self.queue is None else self.queue.last()
        return max(0, newest - self.newest_sent()) + len(self.inflight)

    def space(self) -> int:
        """How many more messages may be added without making the queue longer than the window."""
        newest = self.durable if self.queue is None else self.queue.last()
        return min(self.window, self._length_max) - (newest - self.newest_sent()) - len(self.inflight)

    def puback(self, packet_id: int) -> bool:
        """QoS 1 is done. False: no message with this identifier was waiting for it."""
        delivery = self.inflight.get(packet_id)
        if delivery is None or delivery.qos != 1:
            return False
        del self.inflight[packet_id]
        self.memory_bytes -= len(delivery.message.topic_name) + len(delivery.message.payload)
        return True

    def pubrec(self, packet_id: int) -> bool:
        """QoS 2: the client has the message. True: PUBREL is owed, once this is durable."""
        delivery = self.inflight.get(packet_id)
        if delivery is None or delivery.qos != 2:
            return False
        if not delivery.released:
            delivery.released = True
            if self.queue is not None:
                self.queue.release(delivery.sequence)
        return True

    def pubcomp(self, packet_id: int) -> bool:
        """QoS 2 is done. False: no message with this identifier was waiting for it."""
        delivery = self.inflight.get(packet_id)
        if delivery is None or not delivery.released:
            return False
        del self.inflight[packet_id]
        self.memory_bytes -= len(delivery.message.topic_name) + len(delivery.message.payload)
        return True

    def is_waiting(self) -> bool:
        """Whether something follows from an acknowledgement: a message waits for the window, or the store must know."""
        return self.queue is not None or bool(self.backlog) or bool(self.resend_ids)

    def record_acknowledged(self) -> None:
        """Once a turn: tell the persistent queue how far everything is acknowledged."""
        if self.queue is None:
            return
        done = self.newest_sent()
        if self.inflight:
            done = self.inflight[next(iter(self.inflight))].sequence - 1
        if done > self._acknowledged:
            self._acknowledged = done
            self.queue.acknowledge(done)


@final
class MessageDelivery:
    """Every message goes through here, and every acknowledgement."""

    __slots__ = (
        "dirty",
        "_store",
        "_access",
        "_admission",
        "_admitted",
        "_counters",
        "_effects",
        "_retained",
        "_with_shortcuts",
    )

    def __init__(
        self,
        store: Store,
        access: Access,
        admission: Admission,
        counters: Counters,
        effects: Effects,
        retained: "RetainedDelivery",
        with_shortcuts: bool,
    ) -> None:
        self.dirty: dict[Session, None] = {}  # sessions whose window or link has changed in this turn
        self._store: Final = store
        self._access: Final = access
        self._admission: Final = admission
        self._admitted: Final = admission.admitted
        self._counters: Final = counters
        self._effects: Final = effects
        self._retained: Final = retained
        self._with_shortcuts: Final = with_shortcuts

    # -- from publishers -------------------------------------------------------------------------------------------

    def receive(self, session: "Session", link: Link, message: Publish) -> None:
        """A PUBLISH of a connected client."""
        self._counters.publish_received += 1
        self._counters.publish_bytes_received += len(message.payload)
        qos = message.qos
        if qos == 2 and message.packet_id in session.received_ids:
            # MQTT-4.3.3-2: the same message again; the first one may not be durable yet, so this waits as well.
            self._effects.add(AcknowledgementEffect(link, PUBREC, message.packet_id))
            return
        route = self._admitted.get(message.topic_name)
        if route is None or message.retain or not self._access.unrestricted:
            refusal = self._admission.refusal(session.client_id, session.identity, message)
            if refusal is not None:
                if qos:
                    packet_type = PUBACK if qos == 1 else PUBREC
                    self._effects.add(AcknowledgementEffect(link, packet_type, message.packet_id, refusal))
                return
            if route is None:
                route = self._admission.route(message.topic_name)
        self._take(message, route, session.client_id, session, link, session.session_id if qos == 2 else 0)
        if qos == 2:
            session.received_ids.add(message.packet_id)

    def take_sessionless(self, message: Publish, identity: Identity, *, must_be_durable: bool = False) -> int | None:
        """Take a message that no session publishes: a will, PUBWOS or QoS -1 of MQTT-SN, the operator's.

        Returns why it was not taken, None if it was. `must_be_durable`: QoS 0 waits for the commit as well.
        """
        self._counters.publish_received += 1
        self._counters.publish_bytes_received += len(message.payload)
        refusal = self._admission.refusal(identity.client_id, identity, message)
        if refusal is None:
            route = self._admission.route(message.topic_name)
            self._take(message, route, identity.client_id, None, None, 0, must_be_durable)
        return refusal

    def _take(
        self,
        message: Publish,
        route: "Route",
        client_id: str,
        publisher: "Session | None",
        link: Link | None,
        qos2_session_id: int,
        must_be_durable: bool = False,
    ) -> None:
        """The server owns the message from here on: record it, and deliver it when that is allowed."""
        must_be_durable = must_be_durable or message.qos > 0 or message.retain
        if must_be_durable and self._store.failing():
            raise StoreError(f"the store cannot make messages durable now: {self._store.failing()}")
        if message.retain:
            self._retained.publish_pending(message)
        offset = self._store.append_publish(message, client_id, qos2_session_id)
        receivers = route.receivers
        if message.qos and route.persistent:
            receivers = route.enqueue(message, offset, client_id)
        if must_be_durable or (publisher is not None and publisher.pending):
            self._effects.add(PublishEffect(message, offset, receivers, client_id, publisher, link))
        elif receivers:
            # QoS 0 is delivered at once, unless it would overtake something of the same publisher that is pending.
            self.fan_out(message, receivers, client_id)

    # -- to receivers ----------------------------------------------------------------------------------------------

    def fan_out(self, message: Publish, receivers: "list[Subscription]", client_id: str) -> None:
        """Deliver a message of a client to every receiver, each at the QoS it was granted."""
        qos = message.qos
        with_shortcuts = self._with_shortcuts
        sent = 0
        for receiver in receivers:
            session = receiver.session
            if receiver.no_local and session.client_id == client_id:
                if receiver.own is None:
                    continue
                receiver = receiver.own
            link = session.link
            retain = message.retain and receiver.retain_as_published
            if qos == 0 or receiver.qos == 0:
                if link is not None:
                    ids = receiver.ids
                    if retain or ids:
                        is_sent = link.deliver(Delivery(message, 0, retain, False, 0, ids))
                    else:
                        is_sent = link.forward(message)
                    if is_sent:
                        sent += 1
                    else:
                        self._counters.dropped_output_full += 1
            elif not session.has_ended:
                granted = receiver.qos if receiver.qos < qos else qos
                if not with_shortcuts or not deliver_next(
                    session.outbound, link, message, granted, retain, receiver.ids
                ):
                    session.outbound.offer(link, message, granted, retain, receiver.ids)
                sent += 1
        counters = self._counters
        counters.publish_sent += sent
        counters.publish_bytes_sent += sent * len(message.payload)

    def offer(self, session: "Session", message: Publish, qos: int, retain: bool, ids: tuple[int, ...]) -> None:
        """A message that one session is owed has become durable."""
        if not self._with_shortcuts or not deliver_next(session.outbound, session.link, message, qos, retain, ids):
            session.outbound.offer(session.link, message, qos, retain, ids)

    # -- acknowledgements ------------------------------------------------------------------------------------------

    def pubrec(self, session: "Session", link: Link, packet: Pubrec) -> None:
        """PUBREC: the client has a QoS 2 message, or refuses it."""
        if packet.reason >= ReasonCode.UNSPECIFIED_ERROR:
            # Refused (MQTT 5, MQTT-SN): the exchange is over, the identifier is free.
            session.outbound.pubrec(packet.packet_id)
            self.acknowledged(session, session.outbound.pubcomp(packet.packet_id))
        elif session.outbound.pubrec(packet.packet_id):
            self._effects.add(AcknowledgementEffect(link, PUBREL, packet.packet_id))
        else:
            self._counters.acks_unknown += 1

    def pubrel(self, session: "Session", link: Link, packet_id: int) -> None:
        """PUBREL: the client may use the identifier again. One that is not known is confirmed as well."""
        if packet_id in session.received_ids:
            session.received_ids.discard(packet_id)
            if session.session_id:
                self._store.append_pubrel(session.session_id, session.client_id, packet_id)
        self._effects.add(AcknowledgementEffect(link, PUBCOMP, packet_id))

    def acknowledged(self, session: "Session", is_known: bool) -> None:
        """PUBACK or PUBCOMP: QoS 1 or 2 to the client is done, if the packet identifier was known."""
        if not is_known:
            self._counters.acks_unknown += 1
        elif session.outbound.is_waiting() or session.streams.is_flowing():
            self.dirty[session] = None
