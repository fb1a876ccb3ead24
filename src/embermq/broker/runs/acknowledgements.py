"""Runs of acknowledgements from a client: PUBACK, PUBREC, PUBREL or PUBCOMP, many at a time.

Owns: what a run means. That is what its packets mean one after the other (`MessageDelivery`), and so the first one that
is not as expected goes that way, with all behind it; tests/broker/runs/test_acknowledgements.py compares the two.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.link import Link
from embermq.protocol.acknowledgements import Acknowledgements
from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Pubrec

if TYPE_CHECKING:
    from embermq.broker.counters import Counters
    from embermq.broker.delivery import MessageDelivery
    from embermq.broker.effects import Effects
    from embermq.broker.queues.outbound import Outbound
    from embermq.broker.session import Session


@final
class AcknowledgementRuns:
    """Takes the runs of all clients."""

    __slots__ = ("_delivery", "_counters", "_effects")

    def __init__(self, delivery: "MessageDelivery", counters: "Counters", effects: "Effects") -> None:
        self._delivery: Final = delivery
        self._counters: Final = counters
        self._effects: Final = effects

    def receive(self, session: "Session", link: Link, run: Acknowledgements) -> None:
        """A run of a connected client."""
        packet_ids = run.packet_ids
        self._counters.messages_received += len(packet_ids) - 1  # the run itself has been counted as a packet
        if isinstance(packet_ids, range):
            first_id, count = packet_ids.start, len(packet_ids)
            done = self._receive_range(session, link, run.packet_type, first_id, count)
            if done < count:
                self._receive_each(session, link, run.packet_type, list(range(first_id + done, first_id + count)))
        else:
            self._receive_each(session, link, run.packet_type, packet_ids)

    def _receive_each(self, session: "Session", link: Link, packet_type: int, packet_ids: list[int]) -> None:
        delivery = self._delivery
        outbound = session.outbound
        if packet_type == PUBREL:
            done = self._answer_pubrels(session, link, packet_ids)
            for packet_id in packet_ids[done:]:
                delivery.pubrel(session, link, packet_id)
        elif packet_type == PUBREC:
            done = 0 if self._effects.are_soon() else _answer_pubrecs(outbound, link, packet_ids)
            for packet_id in packet_ids[done:]:
                delivery.pubrec(session, link, Pubrec(packet_id))
        else:
            done = _finish(outbound, packet_ids, packet_type == PUBACK)
            if done:
                delivery.acknowledged(session, True)
            for packet_id in packet_ids[done:]:
                is_known = outbound.puback(packet_id) if packet_type == PUBACK else outbound.pubcomp(packet_id)
                delivery.acknowledged(session, is_known)

    def _receive_range(self, session: "Session", link: Link, packet_type: int, first_id: int, count: int) -> int:
        """Messages are answered in the order in which they were sent: without an object for each.

        How many of the first ones were handled; those were sent, or have come, as runs.
        """
        outbound = session.outbound
        done = 0
        if packet_type == PUBREL:
            if not session.session_id and not self._effects.are_soon():
                done = session.received_ids.release(first_id, count, self._effects.released())
                if done:
                    link.acknowledge_all(PUBCOMP, range(first_id, first_id + done))
        elif packet_type == PUBREC:
            if outbound.queue is None and not self._effects.are_soon():
                done = outbound.inflight.release(first_id, count)
                if done:
                    link.acknowledge_all(PUBREL, range(first_id, first_id + done))
        elif not outbound.resend_ids:
            done, done_bytes = outbound.inflight.finish(first_id, count, packet_type == PUBACK)
            if done:
                outbound.memory_bytes -= done_bytes
                self._delivery.acknowledged(session, True)
        return done

    def _answer_pubrels(self, session: "Session", link: Link, packet_ids: list[int]) -> int:
        """Send PUBCOMP for the first ones whose PUBREC was sent, if nothing is recorded; how many those are."""
        if session.session_id or self._effects.are_soon():
            return 0
        received_ids = session.received_ids.parted()
        released = self._effects.released()
        done = 0
        for packet_id in packet_ids:
            pubrec = received_ids.get(packet_id)
            if pubrec is None or pubrec > released:
                break
            del received_ids[packet_id]
            done += 1
        if done:
            link.acknowledge_all(PUBCOMP, packet_ids if done == len(packet_ids) else packet_ids[:done])
        return done


def _answer_pubrecs(outbound: "Outbound", link: Link, packet_ids: list[int]) -> int:
    """Send PUBREL for the first ones that are in flight, if nothing is recorded; how many those are."""
    if outbound.queue is not None:
        return 0
    inflight = outbound.inflight.parted()
    done = 0
    for packet_id in packet_ids:
        delivery = inflight.get(packet_id)
        if delivery is None or delivery.qos != 2:
            break
        delivery.released = True
        done += 1
    if done:
        link.acknowledge_all(PUBREL, packet_ids if done == len(packet_ids) else packet_ids[:done])
    return done


def _finish(outbound: "Outbound", packet_ids: list[int], is_puback: bool) -> int:
    """PUBACK or PUBCOMP of the first ones that are in flight; how many those are."""
    if outbound.resend_ids:
        return 0
    inflight = outbound.inflight.parted()
    memory_bytes = outbound.memory_bytes
    done = 0
    for packet_id in packet_ids:
        delivery = inflight.get(packet_id)
        if delivery is None or (delivery.qos != 1 if is_puback else not delivery.released):
            break
        del inflight[packet_id]
        message = delivery.message
        memory_bytes -= len(message.topic_name) + len(message.payload) + len(message.properties)
        done += 1
    outbound.memory_bytes = memory_bytes
    return done
