"""Delivery of messages, from the publisher to the receivers (3.1.1 sections 3.3 to 3.7, 4.3 and 4.4).

Owns: the three QoS levels in both directions: a message's record, the queues that it enters, the moment at which it is
delivered, and the acknowledgements from and to clients. What each session is owed is in `queues`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Access, Identity
from embermq.broker.admission import Admission
from embermq.broker.counters import Counters
from embermq.broker.effects import AcknowledgementEffect, Effects, PublishEffect
from embermq.broker.link import Link
from embermq.broker.queues.clock import Clock
from embermq.broker.queues.flow import Flow
from embermq.broker.runs.acknowledgements import AcknowledgementRuns
from embermq.broker.runs.deliveries import send_new
from embermq.broker.runs.publishes import join_run
from embermq.broker.shortcuts import deliver_next
from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Delivery, Publish, Pubrec, Pubrel
from embermq.protocol.reasons import ReasonCode
from embermq.protocol.refused_publish import RefusedPublish
from embermq.store.interface import Store, StoreError

if TYPE_CHECKING:
    from embermq.broker.queues.route_group import RouteGroup
    from embermq.broker.retained_delivery import RetainedDelivery
    from embermq.broker.routes import Route, Subscription
    from embermq.broker.session import Session


@final
class MessageDelivery:
    """Every message goes through here, and every acknowledgement."""

    __slots__ = (
        "clock",
        "dirty",
        "flow",
        "runs",
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
        clock: Clock,
        with_shortcuts: bool,
        report_long_queue: Callable[[str], None],
    ) -> None:
        self.dirty: dict[Session, None] = {}  # sessions whose window or link has changed in this turn
        self._store: Final = store
        self._access: Final = access
        self._admission: Final = admission
        self._admitted: Final = admission.admitted
        self._counters: Final = counters
        self._effects: Final = effects
        self._retained: Final = retained
        self.clock: Final = clock
        self.flow: Final = Flow(counters, report_long_queue)
        self.runs: Final = AcknowledgementRuns(self, counters, effects)
        self._with_shortcuts: Final = with_shortcuts

    # -- from publishers -------------------------------------------------------------------------------------------

    def receive(self, session: "Session", link: Link, message: Publish) -> None:
        """A PUBLISH of a connected client."""
        qos = message.qos
        counters = self._counters
        payload_bytes = len(message.payload)
        counters.publish_received += 1
        counters.publish_bytes_received += payload_bytes
        if qos == 1:
            counters.publish_received_1 += 1
            counters.publish_bytes_received_1 += payload_bytes
        elif qos == 2:
            counters.publish_received_2 += 1
            counters.publish_bytes_received_2 += payload_bytes
        if qos == 2 and message.packet_id in session.received_ids.parted():
            # MQTT-4.3.3-2: the same message again; the first one may not be durable yet, so this waits as well.
            self._effects.add(AcknowledgementEffect(link, PUBREC, message.packet_id))
            session.remember_received(message.packet_id, self._effects.added)
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
        is_taken = self._take(message, route, session.client_id, session, link, session.session_id if qos == 2 else 0)
        if qos == 2 and is_taken:
            session.remember_received(message.packet_id, self._effects.added)

    def _count_received(self, qos: int, payload_bytes: int) -> None:
        counters = self._counters
        counters.publish_received += 1
        counters.publish_bytes_received += payload_bytes
        if qos == 1:
            counters.publish_received_1 += 1
            counters.publish_bytes_received_1 += payload_bytes
        elif qos == 2:
            counters.publish_received_2 += 1
            counters.publish_bytes_received_2 += payload_bytes

    def refuse(self, session: "Session", link: Link, packet: RefusedPublish) -> None:
        """A PUBLISH of a connected client that is wrong in itself."""
        self._count_received(packet.qos, packet.payload_bytes)
        reason: int = 0
        if packet.qos == 1 or packet.packet_id not in session.received_ids.parted():
            reason = self._admission.refuse_payload(session.client_id, packet)
        packet_type = PUBACK if packet.qos == 1 else PUBREC
        self._effects.add(AcknowledgementEffect(link, packet_type, packet.packet_id, reason))

    def take_sessionless(self, message: Publish, identity: Identity, *, must_be_durable: bool = False) -> int | None:
        """Take a message that no session publishes: a will, PUBWOS or QoS -1 of MQTT-SN, the operator's.

        Returns why it was not taken, None if it was. `must_be_durable`: QoS 0 waits for the commit as well.
        """
        self._count_received(message.qos, len(message.payload))
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
    ) -> bool:
        """The server owns the message from here on: record it, deliver it when that is allowed. False: refused."""
        must_be_durable = must_be_durable or message.qos > 0 or message.retain
        if must_be_durable and self._store.failing():
            return self._refuse_durable(message, publisher, link)
        if message.retain:
            self._retained.publish_pending(message)
        offset = self._store.append_publish(message, client_id, qos2_session_id)
        receivers = route.receivers
        if message.qos and route.persistent:
            receivers = route.enqueue(message, offset, client_id)
            if receivers is not route.receivers:
                for receiver in route.persistent:
                    self.flow.rising[receiver.session] = None
        shares: list[tuple[RouteGroup, int]] = []
        if route.groups:
            shares = [(group, group.enqueue(message, offset, client_id)) for group in route.groups]
            self._counters.dropped_queue_full += route.groups_left_out
        if must_be_durable or (publisher is not None and publisher.pending):
            if (
                self._with_shortcuts
                and publisher is not None
                and link is not None
                and not shares
                and join_run(self._effects, message, receivers, publisher, link)
            ):
                return True
            has_subscribers = bool(route.receivers or shares)
            self._effects.add(
                PublishEffect(message, offset, receivers, shares, has_subscribers, client_id, publisher, link)
            )
            return True
        # QoS 0 is delivered at once, unless it would overtake something of the same publisher that is pending.
        if receivers:
            self.fan_out(message, receivers, client_id)
        for group, sequence in shares:
            group.offer(message, sequence)
        return True

    def _refuse_durable(self, message: Publish, publisher: "Session | None", link: Link | None) -> bool:
        """The store cannot keep a message. A client that can be told is told if the disk has reached its reserve; else
        its connection ends without an answer, so that it keeps the message.
        """
        if publisher is None or link is None or not publisher.is_told_reasons() or not self._store.is_full():
            raise StoreError(f"the store cannot make messages durable now: {self._store.failing()}")
        self._counters.store_refusals += 1
        if message.qos:
            packet_type = PUBACK if message.qos == 1 else PUBREC
            self._effects.add(AcknowledgementEffect(link, packet_type, message.packet_id, ReasonCode.QUOTA_EXCEEDED))
        return False

    # -- to receivers ----------------------------------------------------------------------------------------------

    def fan_out(self, message: Publish, receivers: "list[Subscription]", client_id: str) -> None:
        """Deliver a message of a client to every receiver, each at the QoS it was granted."""
        if message.expires_us and self.clock.has_expired_live(message):
            self._expire(message, receivers, client_id)
            return
        qos = message.qos
        with_shortcuts = self._with_shortcuts
        sent = sent_1 = sent_2 = 0
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
                        session.outbound.dropped += 1
            elif not session.has_ended:
                granted = receiver.qos if receiver.qos < qos else qos
                outbound = session.outbound
                if not with_shortcuts or not deliver_next(outbound, link, message, granted, retain, receiver.ids):
                    outbound.offer(link, message, granted, retain, receiver.ids)
                    if outbound.is_above_high_water():
                        self.flow.rising[session] = None
                if granted == 1:
                    sent_1 += 1
                else:
                    sent_2 += 1
        counters = self._counters
        payload_bytes = len(message.payload)
        if qos:
            sent += sent_1 + sent_2
            counters.publish_sent_1 += sent_1
            counters.publish_bytes_sent_1 += sent_1 * payload_bytes
            counters.publish_sent_2 += sent_2
            counters.publish_bytes_sent_2 += sent_2 * payload_bytes
        counters.publish_sent += sent
        counters.publish_bytes_sent += sent * payload_bytes

    def fan_out_run(self, messages: list[Publish], receivers: "list[Subscription]") -> None:
        """Deliver messages of one QoS, 1 or 2, that are not retained and do not expire; no receiver has sent them."""
        qos = messages[0].qos
        count = len(messages)
        payload_bytes = 0
        for message in messages:
            payload_bytes += len(message.payload)
        counters = self._counters
        for receiver in receivers:
            session = receiver.session
            granted = receiver.qos if receiver.qos < qos else qos
            if granted == 0:
                for message in messages:
                    self.fan_out(message, [receiver], "")
                continue
            if session.has_ended:
                continue
            link = session.link
            ids = receiver.ids
            outbound = session.outbound
            sent = send_new(outbound, link, messages, granted, ids)
            for message in messages[sent:] if sent else messages:
                if not deliver_next(outbound, link, message, granted, False, ids):
                    outbound.offer(link, message, granted, False, ids)
                    if outbound.is_above_high_water():
                        self.flow.rising[session] = None
            if granted == 1:
                counters.publish_sent_1 += count
                counters.publish_bytes_sent_1 += payload_bytes
            else:
                counters.publish_sent_2 += count
                counters.publish_bytes_sent_2 += payload_bytes
            counters.publish_sent += count
            counters.publish_bytes_sent += payload_bytes

    def _expire(self, message: Publish, receivers: "list[Subscription]", client_id: str) -> None:
        """A message has expired while it waited for its commit. Stored queues have it, and drop it in its turn."""
        for receiver in receivers:
            asked: Subscription | None = receiver
            session = receiver.session
            if receiver.no_local and session.client_id == client_id:
                asked = receiver.own
            if asked is None:
                continue
            qos = min(asked.qos, message.qos)
            if qos == 0 or session.outbound.queue is None:
                self._counters.dropped_expired += 1
            elif not session.has_ended:
                session.outbound.offer(session.link, message, qos, False, is_live=False)

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
            if session.outbound.queue is None and not self._effects.are_soon():  # nothing was recorded
                link.acknowledge(PUBREL, packet.packet_id, 0)
            else:
                self._effects.add(AcknowledgementEffect(link, PUBREL, packet.packet_id))
        else:
            self._counters.acks_unknown += 1
            link.send(Pubrel(packet.packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))

    def pubrel(self, session: "Session", link: Link, packet_id: int) -> None:
        """PUBREL: the client may use the identifier again. One that is not known is confirmed too, with a reason."""
        reason: int = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        received_ids = session.received_ids.parted()
        pubrec = received_ids.get(packet_id)
        if pubrec is not None:
            reason = 0
            del received_ids[packet_id]
            if session.session_id:
                self._store.append_pubrel(session.session_id, session.client_id, packet_id)
            elif pubrec <= self._effects.released() and not self._effects.are_soon():
                # Nothing is recorded, and PUBCOMP does not overtake the PUBREC of its message.
                link.acknowledge(PUBCOMP, packet_id, 0)
                return
        self._effects.add(AcknowledgementEffect(link, PUBCOMP, packet_id, reason))

    def acknowledged(self, session: "Session", is_known: bool) -> None:
        """PUBACK or PUBCOMP: QoS 1 or 2 to the client is done, if the packet identifier was known."""
        if not is_known:
            self._counters.acks_unknown += 1
        elif session.outbound.is_waiting() or session.streams.waiting or session.groups:
            self.dirty[session] = None
