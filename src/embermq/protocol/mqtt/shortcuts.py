"""Shortcuts: functions beside the general path for the packets that come most often.

Owns: `read_common`, which reads PUBLISH and acknowledgements without a reader for each, and acknowledgements that count
up as one packet; `lone_puback`.
Never: a meaning of its own. Each function says when it applies and leaves everything else, errors included, to the
general path (`decode`, `readers`); tests/protocol/mqtt/test_shortcuts.py compares the two. The third shortcut of this
package, bytes that are encoded once for several receivers, is `encode.EncodedMessages`.
"""

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i32, i64

from embermq.protocol.mqtt.fields import topic_name_of
from embermq.protocol.mqtt.writers import ACKNOWLEDGEMENT_BYTES
from embermq.protocol.packets import Acknowledgement, Packet, Publish

TOPIC_CACHE_MAX: Final = 16_384
# A longer name is checked each time it comes: long names that come once must not fill the memory.
TOPIC_CACHE_BYTES_MAX: Final = 256

LONE_PUBACK_BYTES: Final = ACKNOWLEDGEMENT_BYTES

_ACKNOWLEDGEMENTS: Final = frozenset((0x40, 0x50, 0x62, 0x70))
"""The first bytes of PUBACK, PUBREC, PUBREL and PUBCOMP."""

# The first bytes of a PUBLISH with valid flags (3.3.1).
_PUBLISHES: Final = frozenset((0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D))


@final
class TopicNames:
    """Topic names that were found valid, for all connections of a server: most are published to again and again."""

    def __init__(self) -> None:
        self.by_bytes: Final[dict[bytes, str]] = {}

    def learn(self, raw: bytes) -> str:
        """The topic name that these bytes are; raises the error of the general path if they are none."""
        topic_name = topic_name_of(raw)
        if len(raw) <= TOPIC_CACHE_BYTES_MAX:
            if len(self.by_bytes) >= TOPIC_CACHE_MAX:
                self.by_bytes.clear()
            self.by_bytes[raw] = topic_name
        return topic_name


def read_common(
    data: bytes, at: int, packets: list[Packet], bytes_max: int, has_properties: bool, topic_names: TopicNames
) -> int:
    """Read from `at` on, and return where the first packet begins that must be read by the general path.

    Applies to a complete PUBLISH without properties and with a topic name of less than 256 bytes, and to a PUBACK,
    PUBREC, PUBREL or PUBCOMP of four bytes; with a remaining length of one or two bytes, within `bytes_max`; as long as
    nothing is wrong with it but its topic name (whose error is raised as the general path raises it). `has_properties`:
    MQTT 5, where a PUBLISH has a property length, and a remaining length no idle byte. Acknowledgements of one type
    that follow each other, with packet identifiers that count up, become one packet.
    """
    end = len(data)
    known = topic_names.by_bytes
    while at + 3 < end:
        first, length, body = data[at], data[at + 1], at + 2
        if length > 127:
            if data[body] > 127 or (has_properties and not data[body]):
                return at
            length = length & 0x7F | data[body] << 7
            body += 1
        stop = body + length
        if stop > end or length > bytes_max or length < 2:
            return at
        if first & 0xF0 == 0x30:
            name_stop = body + 2 + data[body + 1]
            if name_stop > stop or data[body]:
                return at
            raw = data[body + 2 : name_stop]
            topic_name = known.get(raw)
            if topic_name is None:
                if first not in _PUBLISHES or not raw:
                    return at  # its flags are wrong, whatever its topic name is; or an alias stands for the name
                topic_name = topic_names.learn(raw)
            if first < 0x32:
                if has_properties:
                    if name_stop == stop or data[name_stop]:
                        return at
                    name_stop += 1
                packets.append(Publish(topic_name, data[name_stop:stop], 0, first == 0x31))
            else:
                qos = first >> 1 & 3
                payload_at = name_stop + 2
                packet_id = data[name_stop] << 8 | data[name_stop + 1] if payload_at <= stop else 0
                if packet_id == 0 or qos == 0 or qos == 3:
                    return at
                if has_properties:
                    if payload_at == stop or data[payload_at]:
                        return at
                    payload_at += 1
                payload = data[payload_at:stop]
                packets.append(Publish(topic_name, payload, qos, first & 1 == 1, first & 8 == 8, packet_id))
        else:
            packet_id = data[body] << 8 | data[body + 1]
            if first not in _ACKNOWLEDGEMENTS or data[at + 1] != 2 or packet_id == 0:
                return at
            count = _counting_up(data, at)
            packets.append(Acknowledgement(first >> 4, packet_id, count))
            stop = at + count * ACKNOWLEDGEMENT_BYTES
        at = stop
    return at


def _counting_up(data: bytes, at: int) -> int:
    """How many acknowledgements of one type begin at `at`, each with the identifier that follows the one before."""
    position: i64 = at
    last: i64 = len(data) - ACKNOWLEDGEMENT_BYTES
    word: i32 = read_i32_be(data, position)
    count: i64 = 0
    most: i64 = 0x10000 - i64(word & 0xFFFF)  # the identifier behind 65,535 is 1
    while position <= last and count < most and read_i32_be(data, position) == word:
        word += 1
        count += 1
        position += ACKNOWLEDGEMENT_BYTES
    return count


def lone_puback(data: bytes) -> int:
    """The packet identifier if the bytes are one PUBACK and nothing else; 0 if they must be read by the general path.

    Applies between two packets of a stream only.
    """
    if len(data) == LONE_PUBACK_BYTES and data[0] == 0x40 and data[1] == 2:
        return data[2] << 8 | data[3]
    return 0
