"""Runs of retained messages: a piece for a new subscription, handed to its link at once.

Owns: when a piece is sent as a run. That is what the general path (`RetainedDelivery`) does with one message after the
other, and so a piece with a message that is not as expected goes that way.
"""

from typing import TYPE_CHECKING, Final

from embermq.broker.link import Link
from embermq.broker.runs.deliveries import run_places, send_new_retained
from embermq.store.interface import Retained

if TYPE_CHECKING:
    from embermq.broker.session import Session

RUN_BYTES_MAX: Final = 256 * 1024
"""Retained messages with more bytes together are sent one by one, as far as the client reads."""


def send_retained(session: "Session", link: Link, found: list[Retained], qos: int, ids: tuple[int, ...]) -> bool:
    """Send a piece at the QoS that was granted. False: nothing was sent, all of it goes by the general path.

    If the messages are small together, none has properties, and all are sent at the same QoS. At QoS 1 and 2, if the
    session has no stored queue, and its window and its client have room for all of them.
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
        return not ids and link.deliver_retained(topics, [retained.payload for retained in found], 0, 0)
    outbound = session.outbound
    can_be_run = outbound.queue is None and not ids and run_places(outbound) >= len(found)
    if can_be_run and (qos == 1 or all(retained.qos == found[0].qos for retained in found)):
        outbound.pump(link, True)  # what was acknowledged may allow for a larger window
        if send_new_retained(outbound, link, found, qos if qos == 1 else found[0].qos):
            outbound.pump(link, True)  # it sees whether the window is full
            return True
    return False
