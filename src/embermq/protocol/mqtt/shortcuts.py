"""Shortcuts: functions beside the general path for the packets that come most often.

Owns: `read_common`, which reads PUBLISH and acknowledgements without a reader for each, and runs of acknowledgements as
one packet; `lone_puback`; the functions `gather_...`, which write many messages at once.
Never: a meaning of its own. Each function says when it applies and leaves everything else, errors included, to the
general path (`decode`, `readers`); tests/protocol/mqtt/test_shortcuts.py compares the two. The third shortcut of this
package, bytes that are encoded once for several receivers, is `encode.EncodedMessages`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from librt.strings import read_i32_be
from mypy_extensions import i32, i64

from embermq.protocol.acknowledgements import RUN_MIN, Acknowledgements
from embermq.protocol.mqtt.fields import topic_name_of
from embermq.protocol.mqtt.writers import retained_publishes
from embermq.protocol.packets import Delivery, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel

if TYPE_CHECKING:
    from embermq.protocol.mqtt.connection import Connection

TOPIC_CACHE_MAX: Final = 16_384
# A longer name is checked each time it comes: long names that come once must not fill the memory.
TOPIC_CACHE_BYTES_MAX: Final = 256

ACKNOWLEDGEMENT_BYTES: Final = 4
LONE_PUBACK_BYTES: Final = ACKNOWLEDGEMENT_BYTES

_RUN_BYTES: Final = RUN_MIN * ACKNOWLEDGEMENT_BYTES
_RUN_LAST: Final = _RUN_BYTES - ACKNOWLEDGEMENT_BYTES

# Topic names that were found valid, by their bytes, for all connections: most topics are published to again and again.
_topic_names: Final[dict[bytes, str]] = {}
_ACKNOWLEDGEMENTS: Final[dict[int, Callable[[int], Packet]]] = {0x40: Puback, 0x50: Pubrec, 0x62: Pubrel, 0x70: Pubcomp}

# The first bytes of a PUBLISH with valid flags (3.3.1).
_PUBLISHES: Final = frozenset((0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D))


def read_common(
    data: bytes, at: int, packets: list[Packet], bytes_max: int, has_properties: bool, has_runs: bool = False
) -> int:
    """Read from `at` on, and return where the first packet begins that must be read by the general path.

    Applies to a complete PUBLISH without properties and with a topic name of less than 256 bytes, and to a PUBACK,
    PUBREC, PUBREL or PUBCOMP of four bytes; with a remaining length of one or two bytes, within `bytes_max`; as long as
    nothing is wrong with it but its topic name (whose error is raised as the general path raises it). `has_properties`:
    MQTT 5, where a PUBLISH has a property length, and a remaining length no idle byte. `has_runs`: acknowledgements of
    one type that follow each other become one packet.
    """
    end = len(data)
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
            topic_name = _topic_names.get(raw)
            if topic_name is None:
                if first not in _PUBLISHES or not raw:
                    return at  # its flags are wrong, whatever its topic name is; or an alias stands for the name
                topic_name = _learn_topic_name(raw)
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
            acknowledgement, packet_id = _ACKNOWLEDGEMENTS.get(first), data[body] << 8 | data[body + 1]
            if acknowledgement is None or length != 2 or packet_id == 0:
                return at
            if has_runs and at + _RUN_BYTES <= end and data[at + _RUN_LAST] == first and body == at + 2:
                at = _read_run(data, at, packets)
                continue
            packets.append(acknowledgement(packet_id))
        at = stop
    return at


def _read_run(data: bytes, at: int, packets: list[Packet]) -> int:
    """Read acknowledgements as one packet, from one at `at` that is valid on; returns where the next packet begins.

    Those whose identifiers count up by one are a range; if there are few of them, all that follow are a list.
    """
    count = _counting_up(data, at)
    if count >= RUN_MIN:
        first_id = data[at + 2] << 8 | data[at + 3]
        packets.append(Acknowledgements(data[at] >> 4, range(first_id, first_id + count)))
        return at + count * ACKNOWLEDGEMENT_BYTES
    head = data[at] << 8 | 2
    packet_ids: list[int] = []
    stop = len(data) - ACKNOWLEDGEMENT_BYTES
    while at <= stop:
        word = read_i32_be(data, at)
        packet_id = word & 0xFFFF
        if word >> 16 != head or packet_id == 0:
            break
        packet_ids.append(packet_id)
        at += ACKNOWLEDGEMENT_BYTES
    packets.append(Acknowledgements(head >> 12, packet_ids))
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


def gather_retained(
    connection: "Connection", topics: list[bytes], payloads: list[bytes], qos: int, packet_id: int
) -> bool:
    """Gather retained messages as PUBLISH packets with RETAIN. False: do it by `Connection.deliver` of each.

    At QoS 1 and 2 their packet identifiers count up from `packet_id`.

    Applies to messages without properties, if none of them depends on the client's aliases or maximum, and if there is
    room for all of them.
    """
    negotiation = connection.negotiation
    if negotiation is not None and negotiation.is_limited:
        return False
    frames = retained_publishes(topics, payloads, negotiation is not None, qos, packet_id)
    return _gather_all(connection, frames, len(topics))


def gather_deliveries(connection: "Connection", deliveries: list[Delivery]) -> int:
    """Gather the first messages at QoS 1 and 2, while there is room; how many those are. The next is for `deliver`.

    Applies, in MQTT 5, to messages without properties, if none of them depends on the client's aliases or maximum.
    """
    negotiation = connection.negotiation
    if negotiation is not None and negotiation.is_limited:
        return 0
    count, frames = connection.encoded.run(deliveries, connection.output_bytes_max - connection.pending_bytes)
    if count:
        connection.gather_run(frames, count)
    return count


def gather_messages(
    connection: "Connection", messages: list[Publish], qos: int, packet_id: int, ids: tuple[int, ...]
) -> bool:
    """Gather new messages at QoS 1 or 2, with packet identifiers from `packet_id` on. False: `deliver` each of them.

    Applies to messages with short payloads, in MQTT 5 without properties and Subscription Identifiers (`ids`), if none
    of them depends on the client's aliases or maximum, and if there is room for all of them.
    """
    negotiation = connection.negotiation
    if negotiation is not None and (negotiation.is_limited or ids):
        return False
    return _gather_all(connection, connection.encoded.messages(messages, qos, packet_id), len(messages))


def _gather_all(connection: "Connection", frames: bytes, packets: int) -> bool:
    if not frames or connection.pending_bytes + len(frames) > connection.output_bytes_max:
        return False
    connection.gather_run(frames, packets)
    return True


def _learn_topic_name(raw: bytes) -> str:
    topic_name = topic_name_of(raw)
    if len(raw) <= TOPIC_CACHE_BYTES_MAX:
        if len(_topic_names) >= TOPIC_CACHE_MAX:
            _topic_names.clear()
        _topic_names[raw] = topic_name
    return topic_name
