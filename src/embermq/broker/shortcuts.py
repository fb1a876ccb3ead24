"""Shortcuts: the packets that most clients send most of the time, without the checks that cannot fail for them.

Owns: these functions, each with its predicate at the head. A function that declines has done nothing, and the general
path follows; one that accepts has done what the general path would have done. tests/broker/test_shortcuts.py runs
random scripts with and without shortcuts and compares all that is sent, counted and recorded.
`Core(shortcuts=False)` never calls them.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.effects import PublishEffect
from embermq.broker.link import Link
from embermq.broker.runs.publishes import RUN_MIN, RUN_WEIGHT_MAX, messages_of_run, packet_ids_of
from embermq.protocol.packets import PUBACK, PUBREC, Delivery, Packet, Publish
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
        or memory_bytes > outbound.direct_bytes_max
        or outbound.resend_ids
        or outbound.shared
        or not link.has_room()
    ):
        return False
    packet_id = durable % PACKET_IDS + 1
    if packet_id in inflight.parted():
        return False
    durable += 1
    outbound.durable = durable
    outbound.fetched = durable
    outbound.memory_bytes = memory_bytes
    delivery = Delivery(message, qos, retain, False, packet_id, ids, durable)
    outbound.own_inflight().by_id[packet_id] = delivery
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

    def publish(self, session: "Session", link: Link, message: Publish, packets: list[Packet], position: int) -> int:
        """A PUBLISH, and what follows it in the read from `position` on. How many messages were taken.

        At QoS 1 and 2 several can be taken as a run (`_publish_run`); else it is the one.
        """
        if message.qos and len(packets) - position >= RUN_MIN - 1:
            taken = self._publish_run(session, link, packets, position - 1)
            if taken:
                return taken
        return 1 if self._publish(session, link, message) else 0

    def _publish(self, session: "Session", link: Link, message: Publish) -> bool:
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
        if qos == 2 and (session.session_id or message.packet_id in session.received_ids.parted()):
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

    def _publish_run(self, session: "Session", link: Link, packets: list[Packet], position: int) -> int:
        """Messages at QoS 1 or 2 to one topic name that follow each other in a read are taken together.

        How many of those from `position` on; 0 if they are few or something about them is particular. If the topic name
        is admitted, every client has all rights, no receiver has a stored queue or has sent the messages itself, and
        none was received before. General path: `_publish` and `MessageDelivery.receive` of each.
        """
        first = packets[position]
        assert isinstance(first, Publish)
        route = self._admitted.get(first.topic_name)
        if route is None or not self._access.unrestricted or route.persistent or route.groups or self._store.failing():
            return 0
        receivers = route.receivers
        if self._commits_at_once and (self._effects.pending or session.pending or not receivers):
            return 0
        messages = messages_of_run(packets, position, RUN_WEIGHT_MAX // (1 + len(receivers)))
        count = len(messages)
        if count < RUN_MIN:
            return 0
        if first.qos == 2 and (session.session_id or session.received_ids.has_any(first.packet_id, count)):
            return 0
        for receiver in receivers:
            if receiver.session is session:
                return 0
        self._count_run(messages)
        client_id = session.client_id
        offset = self._store.append_publish(first, client_id)
        for message in messages[1:]:
            self._store.append_publish(message, client_id)
        if self._commits_at_once:
            if first.qos == 2:
                session.remember_received_run(first.packet_id, count, 0)  # their PUBRECs wait for no effect
            self._delivery.fan_out_run(messages, receivers)
            link.acknowledge_all(PUBACK if first.qos == 1 else PUBREC, packet_ids_of(messages))
        else:
            self._effects.add_run(
                PublishEffect(first, offset, receivers, [], bool(receivers), client_id, session, link), messages[1:]
            )
            if first.qos == 2:
                session.remember_received_run(first.packet_id, count, self._effects.added)
        return count

    def _count_run(self, messages: list[Publish]) -> None:
        counters = self._counters
        count = len(messages)
        payload_bytes = 0
        for message in messages:
            payload_bytes += len(message.payload)
        counters.publish_received += count
        counters.publish_bytes_received += payload_bytes
        if messages[0].qos == 1:
            counters.publish_received_1 += count
            counters.publish_bytes_received_1 += payload_bytes
        else:
            counters.publish_received_2 += count
            counters.publish_bytes_received_2 += payload_bytes

    def puback(self, session: "Session", packet_id: int) -> bool:
        """A PUBACK that comes alone is done without a turn, if nothing follows from it.

        If no message waits for the place in the window that it frees, and no store has to know of it. General path:
        `Outbound.puback` and `MessageDelivery.acknowledged`.
        """
        outbound = session.outbound
        if outbound.queue is not None or outbound.backlog or outbound.resend_ids or session.streams.waiting:
            return False
        if session.groups or outbound.is_watched():
            return False
        inflight = outbound.inflight.parted()
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
