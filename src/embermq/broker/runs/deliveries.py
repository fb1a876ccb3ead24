"""Runs of deliveries: what a session is owed at QoS 1 and 2, handed to its link many at a time.

Owns: when messages of the backlog are sent as a run. That is what the general path (`Outbound`) does with one after the
other, and so the first one that is not as expected goes that way; tests/broker/test_shortcuts.py compares the two.
"""

from typing import TYPE_CHECKING, Final

from embermq.broker.link import Link
from embermq.protocol.packets import Delivery
from embermq.store.interface import PACKET_IDS

if TYPE_CHECKING:
    from embermq.broker.queues.outbound import Outbound

RUN_MIN: Final = 4
"""Fewer than these are sent one by one: a run has a cost of its own."""


def send_run(outbound: "Outbound", link: Link) -> bool:
    """Send the first messages of the backlog. False: none was sent, the first one goes by the general path.

    As many as the window has places for and the link has room for, up to one that was sent before, has been released or
    may have expired. With messages of share groups in flight there are no runs.
    """
    backlog = outbound.backlog
    inflight = outbound.inflight
    places = outbound.window - len(inflight)
    if places < RUN_MIN or len(backlog) < RUN_MIN or outbound.shared:
        return False
    sequence_end = backlog[0].sequence + places
    if inflight:
        # Packet identifiers follow from sequence numbers: those of the run are free if the oldest in flight is near.
        sequence_end = min(sequence_end, inflight[next(iter(inflight))].sequence + PACKET_IDS)
    sent_before = outbound.sent_before
    run: list[Delivery] = []
    for delivery in backlog:
        sequence = delivery.sequence
        if sequence >= sequence_end or sequence <= sent_before:
            break
        if delivery.released or delivery.message.expires_us:
            break
        run.append(delivery)
    if len(run) < RUN_MIN:
        return False
    count = link.deliver_all(run)
    if not inflight:
        outbound.inflight = inflight = {}  # one empty one is shared by all sessions
    if count == len(backlog):
        backlog.clear()
    elif count:
        popleft = backlog.popleft
        for _ in range(count):
            popleft()
    if count < len(run):
        del run[count:]
    for delivery in run:
        inflight[delivery.packet_id] = delivery
    return count > 0
