"""What clients and a server said to each other, read from the bytes that the server received and sent.

Owns: cutting these into packets, and their parts as far as `expected` asks for them.
Never: the product's codec, so that the two check one another.
"""

from typing import NamedTuple

from support.wire import CONNECT, PUBLISH, Packet


class Message(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int
    is_retained: bool
    packet_id: int


class Connected(NamedTuple):
    client_id: str
    is_clean: bool


class Direction:
    """One direction of a connection."""

    def __init__(self) -> None:
        self._input = bytearray()

    def packets(self, data: bytes) -> list[Packet]:
        """The packets that are whole now."""
        self._input += data
        found = []
        while (body := _body(self._input)) is not None:
            begin, end = body
            found.append(Packet(self._input[0] >> 4, self._input[0] & 15, bytes(self._input[begin:end])))
            del self._input[:end]
        return found


def _body(data: bytearray, at: int = 0) -> tuple[int, int] | None:
    """Where the body of the first packet begins and ends; None if it is not all there."""
    length = shift = 0
    for begin in range(at + 1, len(data)):
        length |= (data[begin] & 0x7F) << shift
        shift += 7
        if not data[begin] & 0x80:
            return (begin + 1, begin + 1 + length) if begin + 1 + length <= len(data) else None
    return None


def level_of(packet: Packet) -> int:
    assert packet.kind == CONNECT
    return packet.body[2 + int.from_bytes(packet.body[:2])]


def connected(packet: Packet, level: int) -> Connected:
    at = 2 + int.from_bytes(packet.body[:2]) + 1
    is_clean = bool(packet.body[at] & 2)
    at += 3
    if level == 5:
        at = _after_properties(packet.body, at)
    return Connected(_string(packet.body, at)[0], is_clean)


def message(packet: Packet, level: int) -> Message:
    assert packet.kind == PUBLISH
    qos = packet.flags >> 1 & 3
    topic_name, at = _string(packet.body, 0)
    packet_id = int.from_bytes(packet.body[at : at + 2]) if qos else 0
    at += 2 if qos else 0
    if level == 5:
        at = _after_properties(packet.body, at)
    return Message(topic_name, packet.body[at:], qos, bool(packet.flags & 1), packet_id)


def topic_filters(packet: Packet, level: int) -> list[str]:
    """Of a SUBSCRIBE."""
    at = _after_properties(packet.body, 2) if level == 5 else 2
    found = []
    while at < len(packet.body):
        topic_filter, at = _string(packet.body, at)
        found.append(topic_filter)
        at += 1
    return found


def _string(body: bytes, at: int) -> tuple[str, int]:
    end = at + 2 + int.from_bytes(body[at : at + 2])
    return body[at + 2 : end].decode(), end


def _after_properties(body: bytes, at: int) -> int:
    length = shift = 0
    while True:
        digit = body[at]
        length |= (digit & 0x7F) << shift
        shift += 7
        at += 1
        if not digit & 0x80:
            return at + length
