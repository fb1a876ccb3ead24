"""Runs of retained messages: a piece for a new subscription, handed to its link at once.

Owns: when a piece is sent as a run. That is what the general path (`RetainedDelivery`) does with one message after the
other, and so a piece with a message that is not as expected goes that way.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from embermq.broker.link import Link
from embermq.protocol.packets import Delivery, Publish
from embermq.store.interface import Retained, packet_id_of

if TYPE_CHECKING:
    from embermq.broker.queues.outbound import Outbound
    from embermq.broker.session import Session

RUN_BYTES_MAX: Final = 256 * 1024
"""Retained messages with more bytes together are sent one by one, as far as the client reads."""


def send_retained(session: "Session", link: Link, found: list[Retained], qos: int, ids: tuple[int, ...]) -> bool:
    """Send a piece at the QoS that was granted. False: nothing was sent, all of it goes by the general path.

    If the messages are small together, none has properties, and all have an acknowledgement or none has.
    """
    size_bytes = 0
    for retained in found:
        if retained.properties or (qos and not retained.qos):
            return False
        size_bytes += len(retained.topic) + len(retained.payload)
    if size_bytes > RUN_BYTES_MAX:
        return False
    if not found:
        return True
    if qos == 0:
        # From the store to the link as bytes, without packets.
        topics = [retained.topic for retained in found]
        return not ids and link.deliver_retained(topics, [retained.payload for retained in found])
    return _offer(session.outbound, link, found, qos, ids)


def _offer(outbound: "Outbound", link: Link, found: list[Retained], qos: int, ids: tuple[int, ...]) -> bool:
    """Let a session without a stored queue be owed a piece for which its window has places, and send it."""
    sequence = outbound.durable
    if outbound.queue is not None or outbound.fetched != sequence or outbound.backlog or outbound.resend_ids:
        return False
    deliveries: list[Delivery] = []
    memory_bytes = outbound.memory_bytes
    for retained in found:
        sequence += 1
        message = Publish(retained.topic_name, retained.payload, retained.qos, True)
        memory_bytes += len(message.topic_name) + len(message.payload)
        granted = retained.qos if retained.qos < qos else qos
        deliveries.append(Delivery(message, granted, True, False, packet_id_of(sequence), ids, sequence))
    if memory_bytes > outbound.high_water_bytes:
        return False
    outbound.backlog = deque(deliveries)
    outbound.durable = outbound.fetched = sequence
    outbound.memory_bytes = memory_bytes
    outbound.pump(link, True)
    return True
