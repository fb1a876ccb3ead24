"""Acknowledgements one by one, as most tests send and expect them."""

from typing import TypeGuard

from embermq.protocol.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, Acknowledgement, Packet


def puback(packet_id: int, reason: int = 0) -> Acknowledgement:
    return Acknowledgement(PUBACK, packet_id, 1, reason)


def pubrec(packet_id: int, reason: int = 0) -> Acknowledgement:
    return Acknowledgement(PUBREC, packet_id, 1, reason)


def pubrel(packet_id: int, reason: int = 0) -> Acknowledgement:
    return Acknowledgement(PUBREL, packet_id, 1, reason)


def pubcomp(packet_id: int, reason: int = 0) -> Acknowledgement:
    return Acknowledgement(PUBCOMP, packet_id, 1, reason)


def is_puback(packet: Packet) -> TypeGuard[Acknowledgement]:
    return isinstance(packet, Acknowledgement) and packet.packet_type == PUBACK


def is_pubrec(packet: Packet) -> TypeGuard[Acknowledgement]:
    return isinstance(packet, Acknowledgement) and packet.packet_type == PUBREC


def is_pubrel(packet: Packet) -> TypeGuard[Acknowledgement]:
    return isinstance(packet, Acknowledgement) and packet.packet_type == PUBREL


def acknowledgements(packet_type: int, packet_ids: list[int]) -> list[Packet]:
    """One of a type for each packet identifier."""
    return [Acknowledgement(packet_type, packet_id) for packet_id in packet_ids]


def singles(packets: list[Packet]) -> list[Packet]:
    """The same packets, with one for each acknowledgement."""
    found: list[Packet] = []
    for packet in packets:
        if isinstance(packet, Acknowledgement):
            ids = range(packet.packet_id, packet.packet_id + packet.count)
            found += [Acknowledgement(packet.packet_type, packet_id, 1, packet.reason) for packet_id in ids]
        else:
            found.append(packet)
    return found


def in_runs(packets: list[Packet]) -> list[Packet]:
    """As a connection reads them: acknowledgements of one type whose packet identifiers count up are one packet."""
    gathered: list[Packet] = []
    for packet in packets:
        last = gathered[-1] if gathered else None
        if (
            isinstance(packet, Acknowledgement)
            and isinstance(last, Acknowledgement)
            and (last.packet_type, last.reason) == (packet.packet_type, packet.reason)
            and last.packet_id + last.count == packet.packet_id
        ):
            gathered[-1] = Acknowledgement(last.packet_type, last.packet_id, last.count + packet.count, last.reason)
        else:
            gathered.append(packet)
    return gathered
