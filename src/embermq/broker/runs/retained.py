"""Runs of retained messages: a piece for a new subscription, handed to its link at once.

Owns: when a piece is sent as a run. That is what the general path (`RetainedDelivery`) does with one message after the
other, and so a piece with a message that is not as expected goes that way.
"""

from typing import TYPE_CHECKING, Final

from embermq.broker.link import Link
from embermq.broker.runs.deliveries import run_places, send_new_retained
from embermq.store.interface import MIXED, RetainedPiece, RetainedPosition

if TYPE_CHECKING:
    from embermq.broker.session import Session

RUN_BYTES_MAX: Final = 256 * 1024
"""Retained messages with more bytes together are sent one by one, as far as the client reads."""


def send_retained(
    session: "Session", link: Link, piece: RetainedPiece, position: RetainedPosition, ids: tuple[int, ...]
) -> bool:
    """Send a piece at the QoS that was granted. False: nothing was sent, all of it goes by the general path.

    If the messages are small together, none has properties, and all are sent at the same QoS. At QoS 1 and 2, if the
    session has no stored queue, and its window and its client have room for all of them.
    """
    if not len(piece):
        return True
    if ids or piece.size_bytes > RUN_BYTES_MAX:
        return False
    qos = piece.sent_qos(position.before_offset, position.qos)
    if qos == MIXED:
        return False
    if qos == 0:
        # From the store to the link as bytes, without packets.
        return link.deliver_retained(piece.topics(), piece.payloads(), 0, 0)
    outbound = session.outbound
    if outbound.queue is not None or run_places(outbound) < len(piece):
        return False
    outbound.pump(link, True)  # what was acknowledged may allow for a larger window
    is_sent = send_new_retained(outbound, link, piece, qos)
    if is_sent:
        outbound.pump(link, True)  # it sees whether the window is full
    return is_sent
