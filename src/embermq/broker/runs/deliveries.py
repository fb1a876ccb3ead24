"""Runs of deliveries: what a session is owed at QoS 1 and 2, handed to its link many at a time.

Owns: when messages of the backlog, or new ones, are sent as a run. That is what the general path (`Outbound`) does with
one after the other, and so the first one that is not as expected goes that way; tests/broker/test_shortcuts.py compares
the two.
"""

from typing import TYPE_CHECKING, Final

from embermq.broker.link import Link
from embermq.broker.queues.inflight import SentRun
from embermq.protocol.packets import Delivery, Publish
from embermq.store.interface import PACKET_IDS, RetainedPiece, packet_id_of

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
    if len(inflight):
        # Packet identifiers follow from sequence numbers: those of the run are free if the oldest in flight is near.
        sequence_end = min(sequence_end, inflight.oldest_sequence() + PACKET_IDS)
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
    if count == len(backlog):
        backlog.clear()
    elif count:
        popleft = backlog.popleft
        for _ in range(count):
            popleft()
    if count < len(run):
        del run[count:]
    by_id = outbound.own_inflight().parted()
    for delivery in run:
        by_id[delivery.packet_id] = delivery
    return count > 0


_NO_MESSAGES: Final[list[Publish]] = []


def run_places(outbound: "Outbound") -> int:
    """How many new messages can be sent as a run: if nothing waits before them, as many as the window has places for.

    Their packet identifiers count up by one and are free.
    """
    if outbound.backlog or outbound.fetched != outbound.durable or outbound.resend_ids or outbound.shared:
        return 0
    inflight = outbound.inflight
    places = min(outbound.window - len(inflight), PACKET_IDS - outbound.durable % PACKET_IDS)
    if len(inflight):
        places = min(places, inflight.oldest_sequence() + PACKET_IDS - outbound.durable - 1)
    return places


def send_new(outbound: "Outbound", link: Link | None, messages: list[Publish], qos: int, ids: tuple[int, ...]) -> int:
    """Send durable messages, which neither are retained nor expire, past the session's queue.

    How many of the first ones were sent. General path: `deliver_next` and `Outbound.offer` of each.
    """
    if link is None:
        return 0
    count = min(len(messages), run_places(outbound))
    if count < RUN_MIN or not link.has_room():
        return 0
    if count < len(messages):
        messages = messages[:count]
    size_bytes = 0
    for message in messages:
        size_bytes += len(message.topic_name) + len(message.payload) + len(message.properties)
    packet_id = packet_id_of(outbound.durable + 1)
    if outbound.memory_bytes + size_bytes > outbound.direct_bytes_max:
        return 0
    if not link.deliver_run(messages, qos, packet_id, ids):
        return 0
    _sent(outbound, SentRun(outbound.durable + 1, packet_id, qos, messages, None, ids, size_bytes))
    return count


def send_new_retained(outbound: "Outbound", link: Link, piece: RetainedPiece, qos: int) -> bool:
    """Send all retained messages of a piece, which have no properties, at the same QoS. False: none was sent."""
    count = len(piece)
    # One message alone would part the runs in flight, which costs more than a short run.
    is_long = count >= RUN_MIN or outbound.inflight.runs
    if not is_long or count > run_places(outbound):
        return False
    size_bytes = piece.queued_bytes(0, count)
    packet_id = packet_id_of(outbound.durable + 1)
    if outbound.memory_bytes + size_bytes > outbound.direct_bytes_max:
        return False
    if not link.deliver_retained(piece.topics(), piece.payloads(), qos, packet_id):
        return False
    _sent(outbound, SentRun(outbound.durable + 1, packet_id, qos, _NO_MESSAGES, piece, (), size_bytes))
    return True


def _sent(outbound: "Outbound", run: SentRun) -> None:
    outbound.own_inflight().add_run(run)
    outbound.durable += run.count
    outbound.fetched = outbound.durable
    outbound.memory_bytes += run.size_bytes
