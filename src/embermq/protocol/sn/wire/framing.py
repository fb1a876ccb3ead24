"""Framing: where an MQTT-SN packet starts and ends in a datagram, and the frames around one.

Owns: both length forms (2.0: section 2.1.2), the forwarder frames of 1.2/A (1.2: section 5.5) and of B, and B's
connection encapsulation.
Never: what is inside a packet.
"""

from typing import Final, final

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.wire.fields import text_of

PACKET_BYTES_MAX: Final = 65_535
SHORT_LENGTH_MAX: Final = 255

FORWARDER_12: Final = 0xFE  # 1.2 and A: the length covers the wrapper only
CONNECTION_B: Final = 0xFE  # B: the same code, but the length covers the whole frame
FORWARDER_B: Final = 0xFC
PROTECTION: Final = 0xFF


@final
class Frame:
    """One packet: its type code and the bytes after the header."""

    def __init__(self, code: int, body: bytes) -> None:
        self.code: Final = code
        self.body: Final = body


@final
class Envelope:
    """A datagram without the frames around its packet.

    `route`: the forwarder's frame code and the node's address, empty for a direct sender; it is part of the sender's
    network identity. `client_id`: of a connection encapsulation, None without one.
    """

    def __init__(self, route: bytes, client_id: str | None, frame: Frame) -> None:
        self.route: Final = route
        self.client_id: Final = client_id
        self.frame: Final = frame


def write_frame(code: int, body: bytes) -> bytes:
    """A packet with the shorter length form that fits."""
    length = 2 + len(body)
    if length <= SHORT_LENGTH_MAX:
        return bytes((length, code)) + body
    length += 2
    if length > PACKET_BYTES_MAX:
        raise ValueError("a packet of more than 65,535 bytes cannot be framed")
    return bytes((0x01, length >> 8, length & 0xFF, code)) + body


def read_header(data: bytes) -> tuple[int, int, int]:
    """(length, header bytes, type code) as the first bytes say, checked only against themselves."""
    size = len(data)
    if size < 2:
        raise MalformedPacket("shorter than any packet", "MQTT-SN-2.1.2-1")
    length = data[0]
    if length != 0x01:
        if length < 2:
            raise MalformedPacket("length 0", "MQTT-SN-2.1.2-1")
        return length, 2, data[1]
    if size < 4:
        raise MalformedPacket("cut inside the long length form", "MQTT-SN-2.1.2-1")
    length = (data[1] << 8) | data[2]
    if length < 4:
        raise MalformedPacket("a length shorter than its own header", "MQTT-SN-2.1.2-1")
    return length, 4, data[3]


def read_frame(data: bytes) -> Frame:
    """The one packet that fills `data`."""
    length, header, code = read_header(data)
    if length != len(data):
        raise MalformedPacket(f"length {length} in {len(data)} bytes", "MQTT-SN-2.1.2-1")
    return Frame(code, data[header:])


def open_envelope(datagram: bytes) -> Envelope:
    """Remove the frames around a packet: at most one forwarder's, inside it at most one connection encapsulation."""
    route = b""
    length, header, code = read_header(datagram)
    if code == FORWARDER_12 and header == 2 and length < len(datagram):
        if length < 3:
            raise MalformedPacket("a forwarder frame without its control byte")
        # The control byte is the radius of a broadcast. It has no meaning here, so it is no part of the route.
        route = bytes((FORWARDER_12,)) + datagram[3:length]
        datagram = datagram[length:]
    elif code == FORWARDER_B:
        frame = read_frame(datagram)
        if not frame.body or len(frame.body) < 1 + frame.body[0]:
            raise MalformedPacket("a forwarder frame shorter than its address")
        route = bytes((FORWARDER_B,)) + frame.body[1 : 1 + frame.body[0]]
        datagram = frame.body[1 + frame.body[0] :]
    frame = read_frame(datagram)
    if frame.code == CONNECTION_B:
        client_id, inner = _open_connection(frame.body)
        frame = read_frame(inner)
        if frame.code == CONNECTION_B:
            raise MalformedPacket("a connection encapsulation inside another")
        return Envelope(route, client_id, frame)
    return Envelope(route, None, frame)


def _open_connection(body: bytes) -> tuple[str, bytes]:
    if len(body) < 2:
        raise MalformedPacket("a connection encapsulation without a ClientID length")
    end = 2 + ((body[0] << 8) | body[1])
    if len(body) < end:
        raise MalformedPacket("a connection encapsulation shorter than its ClientID")
    return text_of(body[2:end]), body[end:]


def wrap_route(route: bytes, packet: bytes) -> bytes:
    """Wrap a packet for a route: as `open_envelope` returned it, empty for none."""
    if not route:
        return packet
    address = route[1:]
    if route[0] == FORWARDER_12:
        return bytes((3 + len(address), FORWARDER_12, 0)) + address + packet
    return write_frame(FORWARDER_B, bytes((len(address),)) + address + packet)
