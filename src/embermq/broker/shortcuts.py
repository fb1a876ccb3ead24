"""Shortcuts: the packets that most clients send most of the time, without the checks that cannot fail for them.

Owns: three functions, each with its predicate at the head. A function that declines has done nothing, and the general
path follows; one that accepts has done what the general path would have done. tests/broker/test_shortcuts.py runs
random scripts with and without shortcuts and compares all that is sent, counted and recorded.
`Core(shortcuts=False)` never calls them.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.link import Link
from embermq.broker.queues.outbound import NO_INFLIGHT
from embermq.protocol.packets import PUBACK, PUBREC, Delivery, Publish
from embermq.protocol.reasons import ReasonCode
from embermq.store.interface import PACKET_IDS, Store

if TYPE_CHECKING:
    from embermq.broker.access import Access
    from embermq.broker.admission import Admission
    from embermq.broker.counters import Counters
    from embermq.broker.delivery import MessageDelivery
    from embermq.broker.effects import Effects
    from embermq.broker.queues.outbound import Outbound
    from embermq.broker.session import Session


def deliver_next(
    outbound: "Outbound", link: Link | None, message: Publish, qos: int, retain: bool, ids: tuple[int, ...]
) -> bool:
    """A durable QoS 1 or 2 message goes from the publisher to the link, past the session's queue.

    If it is the next one in the sequence and the client can take it now. General path: `Outbound.offer`.
    """
    durable = outbound.durable
    inflight = outbound.inflight
    memory_bytes = outbound.memory_bytes + len(message.topic_name) + len(message.payload)
    if message.properties:
        memory_bytes += len(message.properties)
    if (
        link is None
        or outbound.backlog
        or outbound.fetched != durable
        or len(inflight) >= outbound.window
        or memory_bytes > outbound.high_water_bytes
        or outbound.resend_ids
        or outbound.shared
        or not link.has_room()
    ):
        return False
    packet_id = durable % PACKET_IDS + 1
    if packet_id in inflight:
        return False
    durable += 1
    outbound.durable = durable
    outbound.fetched = durable
    outbound.memory_bytes = memory_bytes
    delivery = Delivery(message, qos, retain, False, packet_id, ids, durable)
    if inflight is NO_INFLIGHT:
        outbound.inflight = inflight = {}
    inflight[packet_id] = delivery
    if not link.deliver(delivery):
        outbound.discard(packet_id)
    return True


@final
class Shortcuts:
    """The shortcuts for packets from clients."""

    __slots__ = ("_store", "_commits_at_once", "_access", "_admitted", "_effects", "_delivery", "_counters")

    def __init__(
        self,
        store: Store,
        access: "Access",
        admission: "Admission",
        effects: "Effects",
        delivery: "MessageDelivery",
        counters: "Counters",
    ) -> None:
        self._store: Final = store
        self._commits_at_once: Final = store.at_once()
        self._access: Final = access
        self._admitted: Final = admission.admitted
        self._effects: Final = effects
        self._delivery: Final = delivery
        self._counters: Final = counters

    def publish(self, session: "Session", link: Link, message: Publish) -> bool:
        """A PUBLISH at QoS 0, or at QoS 1 or 2 with nothing to wait for, is recorded and delivered at once.

        If its topic name is admitted, every client has all rights, it is not retained, and nothing is pending that it
        could overtake. General path: `MessageDelivery.receive`.
        """
        route = self._admitted.get(message.topic_name)
        if route is None or message.retain or session.pending or not self._access.unrestricted:
            return False
        qos = message.qos
        if qos == 0:
            if not route.is_plain:
                return False
        elif not self._commits_at_once or self._effects.pending or route.persistent or route.groups:
            return False
        if qos == 2 and (session.session_id or message.packet_id in session.received_ids):
            return False
        counters = self._counters
        payload_bytes = len(message.payload)
        counters.publish_received += 1
        counters.publish_bytes_received += payload_bytes
        self._store.append_publish(message, session.client_id)
        if qos:
            packet_type = PUBACK
            if qos == 1:
                counters.publish_received_1 += 1
                counters.publish_bytes_received_1 += payload_bytes
            else:
                counters.publish_received_2 += 1
                counters.publish_bytes_received_2 += payload_bytes
                session.remember_received(message.packet_id, 0)  # its PUBREC waits for no effect
                packet_type = PUBREC
            if route.receivers:
                self._delivery.fan_out(message, route.receivers, session.client_id)
                link.acknowledge(packet_type, message.packet_id, 0)
            else:
                link.acknowledge(packet_type, message.packet_id, ReasonCode.NO_MATCHING_SUBSCRIBERS)
            return True
        if not route.receivers:
            return True
        sent = 0
        for receiver in route.receivers:
            to = receiver.session.link
            if to is not None:
                if to.forward(message):
                    sent += 1
                else:
                    counters.dropped_output_full += 1
                    receiver.session.outbound.dropped += 1
        counters.publish_sent += sent
        counters.publish_bytes_sent += sent * payload_bytes
        return True

    def puback(self, session: "Session", packet_id: int) -> bool:
        """A PUBACK that comes alone is done without a turn, if nothing follows from it.

        If no message waits for the place in the window that it frees, and no store has to know of it. General path:
        `Outbound.puback` and `MessageDelivery.acknowledged`.
        """
        outbound = session.outbound
        if outbound.queue is not None or outbound.backlog or outbound.resend_ids or session.streams.waiting:
            return False
        if session.groups:
            return False
        inflight = outbound.inflight
        delivery = inflight.get(packet_id)
        if delivery is None or delivery.qos != 1:
            return False
        del inflight[packet_id]
        message = delivery.message
        outbound.memory_bytes -= len(message.topic_name) + len(message.payload)
        if message.properties:
            outbound.memory_bytes -= len(message.properties)
        self._counters.messages_received += 1
        return True
