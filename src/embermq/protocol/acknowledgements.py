"""A run of acknowledgements: several that follow each other, of one type, in the place of a packet for each."""

from collections.abc import Callable
from typing import Final, final

from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Packet, Puback, Pubcomp, Pubrec, Pubrel

RUN_MIN: Final = 4
"""Fewer than these are packets of their own: most clients send an acknowledgement for each packet that they get."""

_CLASSES: Final[dict[int, Callable[[int], Packet]]] = {
    PUBACK: Puback,
    PUBREC: Pubrec,
    PUBREL: Pubrel,
    PUBCOMP: Pubcomp,
}


@final
class Acknowledgements(Packet):
    """PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7), each with reason 0, by the packet identifiers in their order.

    A range, if each identifier follows the one before: most clients acknowledge messages in the order they came.
    """

    __slots__ = ("packet_type", "packet_ids")

    def __init__(self, packet_type: int, packet_ids: list[int] | range) -> None:
        self.packet_type: Final = packet_type
        self.packet_ids: Final = packet_ids


def parted(packets: list[Packet]) -> list[Packet]:
    """The same with a packet for each acknowledgement."""
    singles: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Acknowledgements):
            single = _CLASSES[packet.packet_type]
            singles += [single(packet_id) for packet_id in packet.packet_ids]
        else:
            singles.append(packet)
    return singles
