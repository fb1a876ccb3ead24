"""The bytes of one connection to packets (2.2).

Owns: where one packet ends and the next begins, the unread rest, and the fast way of PUBLISH and its acknowledgements.
Never: the order of packets. That CONNECT comes first and only once is the broker's rule.
This is the server's hottest loop. It is one function on purpose: a call for each packet costs as much as its decoding.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt.fields import VIOLATION, Fields, topic_name_of
from embermq.protocol.mqtt.readers import READERS_FROM_CLIENT, READERS_FROM_SERVER, SENT_AGAIN_31, unwanted
from embermq.protocol.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from embermq.protocol.reasons import ReasonCode

CONNECT_BYTES_MAX: Final = 12 + 5 * (2 + 65_535)
"""The largest CONNECT there can be: its head and its five fields."""
TOPIC_CACHE_MAX: Final = 16_384
# A longer name is checked each time it comes: long and rare must not fill the memory.
TOPIC_CACHE_BYTES_MAX: Final = 256

# Topic names that were found valid, by their bytes, for all connections: most topics are published to again and again.
_topic_names: Final[dict[bytes, str]] = {}


def _learn_topic_name(raw: bytes) -> str:
    topic_name = topic_name_of(raw)
    if len(raw) <= TOPIC_CACHE_BYTES_MAX:
        if len(_topic_names) >= TOPIC_CACHE_MAX:
            _topic_names.clear()
        _topic_names[raw] = topic_name
    return topic_name


@final
class Decoder:
    """Bytes of one connection to packets. Feed it what a read brought.

    `server` says who reads: a server takes what clients send, and the other way round.
    `first_bytes_max`, if not 0, is the limit until a CONNECT was decoded: who has not said a name yet gets less room.
    `protocol_level` is 0 until a CONNECT was decoded, then 3 or 4.
    `error` is set when the stream ended in a bad packet; everything after it is ignored.
    """

    __slots__ = (
        "protocol_level",
        "error",
        "_packet_bytes_max",
        "_bytes_max",
        "_plain_length_max",
        "_readers",
        "_rest",
        "_rest_bytes_wanted",
    )

    def __init__(self, packet_bytes_max: int, server: bool = True, first_bytes_max: int = 0) -> None:
        self.protocol_level = 0
        self.error: PeerError | None = None
        self._packet_bytes_max: Final = packet_bytes_max
        self._bytes_max = min(first_bytes_max or packet_bytes_max, packet_bytes_max)  # the limit now
        # One comparison finds both a length of more than one byte and one above the limit.
        self._plain_length_max: Final = min(127, self._bytes_max)
        self._readers: Final = READERS_FROM_CLIENT if server else READERS_FROM_SERVER
        # The beginning of an incomplete packet, and at what size it is worth another look: a packet that comes
        # in many reads is gathered by appending and looked at once.
        self._rest = bytearray()
        self._rest_bytes_wanted = 0

    def feed(self, data: bytes) -> list[Packet]:
        """All packets that are complete now. Never raises for what a peer sent: see `error`."""
        end = len(data)
        if end >= 4 and data[1] == end - 2 <= self._plain_length_max and not self._rest_bytes_wanted and not self.error:
            # One small packet and nothing else, as those of devices come. The two that come most are read here;
            # `_decode` would find the same in them, and all that can be wrong.
            first = data[0]
            if first == 0x30 or first == 0x32:
                name_stop = 4 + (data[2] << 8 | data[3])
                known = _topic_names.get(data[4:name_stop])
                if known is not None:
                    if first == 0x30:
                        if name_stop <= end:
                            return [Publish(known, data[name_stop:], 0, False, False, 0, b"", data)]
                    elif name_stop + 2 <= end and (data[name_stop] or data[name_stop + 1]):
                        packet_id = data[name_stop] << 8 | data[name_stop + 1]
                        return [
                            Publish(known, data[name_stop + 2 :], 1, False, False, packet_id, b"", data[:name_stop])
                        ]
        packets: list[Packet] = []
        if self.error is not None:
            return packets
        if self._rest_bytes_wanted:
            rest = self._rest
            if len(rest) + end < self._rest_bytes_wanted:
                rest += data
                return packets
            data = bytes(rest) + data
            self._rest = bytearray()
            self._rest_bytes_wanted = 0
        try:
            self._decode(data, packets)
        except PeerError as error:
            # Without its traceback, which would keep this read's bytes alive as long as the connection.
            self.error = error.with_traceback(None)
        return packets

    def puback_alone(self, data: bytes) -> int:
        """The packet identifier if a read brought a PUBACK and nothing else; 0 if it must be fed."""
        if data[0] == 0x40 and data[1] == 2 and not self._rest_bytes_wanted and self.error is None and len(data) == 4:
            return data[2] << 8 | data[3]
        return 0

    def _decode(self, data: bytes, packets: list[Packet]) -> None:
        end = len(data)
        at = 0
        wanted = 0
        plain_length_max = self._plain_length_max
        while at + 1 < end:
            first = data[at]
            length = data[at + 1]
            body = at + 2
            if length > plain_length_max:
                byte = length
                length &= 0x7F
                shift = 7
                while byte > 0x7F and body < end and shift < 28:
                    byte = data[body]
                    length |= (byte & 0x7F) << shift
                    shift += 7
                    body += 1
                if byte > 0x7F:
                    if shift == 28:
                        self._check_first(first)
                        raise MalformedPacket("remaining length of more than four bytes", VIOLATION)
                    break
                if length > self._bytes_max:
                    self._check_first(first)
                    raise ProtocolError(f"packet of {length} bytes", "", ReasonCode.PACKET_TOO_LARGE)
            stop = body + length
            if stop > end:
                wanted = stop - at
                break

            if first & 0xF0 == 0x30:
                if length < 2:
                    raise MalformedPacket("packet is cut short", VIOLATION)
                name_at = body + 2
                name_stop = name_at + (data[body] << 8 | data[body + 1])
                if name_stop > stop:
                    raise MalformedPacket("topic name is longer than its packet", VIOLATION)
                raw = data[name_at:name_stop]
                topic_name = _topic_names.get(raw)
                if topic_name is None:
                    topic_name = _learn_topic_name(raw)
                if first == 0x30 and body - at == 2:
                    packets.append(Publish(topic_name, data[name_stop:stop], 0, False, False, 0, b"", data[at:stop]))
                elif first & 6 == 0:
                    # DUP is meaningless here. 3.3.1-2 forbids a sender to set it; the message is clear all the same,
                    # so it is taken, and the flag is dropped.
                    packets.append(Publish(topic_name, data[name_stop:stop], 0, first & 1 == 1))
                else:
                    qos = first >> 1 & 3
                    if qos == 3:
                        raise MalformedPacket("QoS 3", "MQTT-3.3.1-4")
                    payload_at = name_stop + 2
                    if payload_at > stop:
                        raise MalformedPacket("packet is cut short", VIOLATION)
                    packet_id = data[name_stop] << 8 | data[name_stop + 1]
                    if packet_id == 0:
                        raise ProtocolError("packet identifier 0", "MQTT-2.3.1-1")
                    payload = data[payload_at:stop]
                    if first & 9 == 0 and body - at == 2:
                        packets.append(
                            Publish(topic_name, payload, qos, False, False, packet_id, b"", data[at:name_stop])
                        )
                    else:
                        packets.append(Publish(topic_name, payload, qos, first & 1 == 1, first & 8 == 8, packet_id))
            elif length == 2 and (first == 0x40 or first == 0x62 or first == 0x50 or first == 0x70):
                packet_id = data[body] << 8 | data[body + 1]
                if packet_id == 0:
                    raise ProtocolError("packet identifier 0", "MQTT-2.3.1-1")
                if first == 0x40:
                    packets.append(Puback(packet_id))
                elif first == 0x62:
                    packets.append(Pubrel(packet_id))
                elif first == 0x50:
                    packets.append(Pubrec(packet_id))
                else:
                    packets.append(Pubcomp(packet_id))
            else:
                packet = self._reader(first)(Fields(data, body, stop))
                if isinstance(packet, Connect):
                    self.protocol_level = packet.protocol_level
                    self._bytes_max = self._packet_bytes_max
                packets.append(packet)
            at = stop

        if at < end:
            self._check_first(data[at])
            self._rest += data[at:]
            self._rest_bytes_wanted = wanted or end - at + 1

    def _check_first(self, first: int) -> None:
        """Refuse a byte that begins no packet, before its length is judged or its body gathered.

        So the error is the same however the bytes were split into reads.
        """
        if first & 0xF0 != 0x30:
            self._reader(first)

    def _reader(self, first: int) -> Callable[[Fields], Packet]:
        if self.protocol_level == 3 and first in SENT_AGAIN_31:
            first &= 0xF7
        reader = self._readers.get(first)
        if reader is None:
            raise unwanted(first, self._readers)
        return reader
