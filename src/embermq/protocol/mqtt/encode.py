"""Packets to the bytes of a stream, and bytes that are used again for several receivers of one message.

Owns: the encoder (the dialect's table of writers), and `Encodings`, the only place where encoded bytes are kept.
Never: a socket, a connection.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i16_be
from mypy_extensions import i16

from embermq.protocol.mqtt.dialect import MQTT_311, Dialect
from embermq.protocol.mqtt.shortcuts import TopicNames
from embermq.protocol.mqtt.writers import publish_head, publish_section, write_publish_head
from embermq.protocol.packets import Columns, Delivery, Packet, Publish

SHARED_BYTES_MIN: Final = 64 * 1024
"""From here on a payload is handed to the socket as it is, for all receivers: a copy for each could fill the memory."""
RUN_PAYLOAD_BYTES_MAX: Final = 1_024
"""A longer one is not copied into a run: what the session keeps until it is acknowledged would be in memory twice."""


def encode(packet: Packet, dialect: Dialect = MQTT_311) -> bytes:
    """Any packet as bytes for a peer of a dialect; b"" if the dialect cannot express it."""
    writer = dialect.writers.get(type(packet))
    if writer is None:
        raise TypeError(f"{type(packet).__name__} is not a control packet of {dialect.name}")
    return writer(packet, dialect)


HEADS_MAX: Final = 32_768
"""How many heads of PUBLISH packets are kept for a dialect."""
HEADS_PAYLOAD_BYTES_MAX: Final = 511
HEADS_TOPIC_CHARS_MAX: Final = 256
"""Longer payloads and topic names are encoded each time: long names that come once must not fill the memory."""


@final
class EncodedMessages:
    """Shortcut: encoded bytes that are used again, for all receivers of one dialect.

    `forwarded` is the whole PUBLISH of `message` at QoS 0 without RETAIN, for the other receivers of that message.
    `heads` are what precedes the packet identifier and the payload in a PUBLISH without RETAIN and DUP, by QoS, length
    of the payload and topic name: most topics are published to again and again, with payloads of the same length.
    Applies if `is_reused`; else nothing is kept, and every call encodes. `forwarded` does not apply to a large payload,
    which is not copied, and in MQTT 5 not to a message that expires; `heads` apply to messages without properties: in
    MQTT 5 a property length of 0 follows them.
    """

    def __init__(self, dialect: Dialect, is_reused: bool) -> None:
        self._dialect: Final = dialect
        self._is_reused: Final = is_reused
        self._has_properties: Final = dialect.has_properties
        lengths = HEADS_PAYLOAD_BYTES_MAX + 1 if self._is_reused else 0
        self.message: Publish | None = None
        self.forwarded = b""
        self.heads: Final[list[list[dict[str, bytes]]]] = [[{} for _ in range(lengths)] for _ in range(3)]
        self._forward_heads: Final = self.heads[0]
        self._heads_count = 0

    def keep(self, message: Publish) -> bool:
        """Encode a message at QoS 0 without RETAIN as `forwarded`. False: this does not apply to it."""
        payload = message.payload
        if not self._has_properties or not message.properties:
            try:
                frame = self._forward_heads[len(payload)][message.topic_name] + payload
            except (IndexError, KeyError):
                if not self._is_reused or len(payload) >= SHARED_BYTES_MIN:
                    return False
                frame = self.head(message.topic_name, len(payload), 0) + payload
        elif not self._is_reused or message.expires_us or len(payload) >= SHARED_BYTES_MIN:
            return False
        else:
            rest = publish_section(0, (), message.properties) + payload
            frame = publish_head(message.topic_name, len(rest), 0, False, False) + rest
        self.message = message
        self.forwarded = frame
        return True

    def head(self, topic_name: str, payload_bytes: int, qos: int) -> bytes:
        """A PUBLISH without RETAIN and DUP up to its packet identifier; kept in `heads`."""
        if not self._has_properties:
            head = publish_head(topic_name, payload_bytes, qos, False, False)
        else:
            head = publish_head(topic_name, payload_bytes + 1, qos, False, False)
            if qos == 0:
                head += b"\x00"
        is_kept = payload_bytes <= HEADS_PAYLOAD_BYTES_MAX and len(topic_name) <= HEADS_TOPIC_CHARS_MAX
        if self._is_reused and is_kept:
            if self._heads_count >= HEADS_MAX:
                self._forget_heads()
            self._heads_count += 1
            self.heads[qos][payload_bytes][topic_name] = head
        return head

    def run(self, delivery: Delivery, bytes_max: int) -> tuple[int, bytes]:
        """How many messages of a run are encoded here, and their PUBLISH packets one behind the other.

        Up to one behind which there are more than `bytes_max`, or that has properties, or a long payload.
        """
        writer = BytesWriter()
        has_properties = self._has_properties
        qos, packet_id = delivery.qos, delivery.packet_id
        is_new = not delivery.retain and not delivery.dup
        has_section = has_properties and not (is_new and qos == 0)  # the head of a new one at QoS 0 has it
        count = 0
        head = b""
        # Of the message that `head` is of: most runs have many messages of one topic.
        topic_name = ""
        payload_bytes = -1
        for message in delivery.messages:
            payload = message.payload
            if len(writer) > bytes_max or len(payload) > RUN_PAYLOAD_BYTES_MAX:
                break
            if has_properties and message.properties:
                break
            if len(payload) != payload_bytes or message.topic_name != topic_name:
                topic_name, payload_bytes = message.topic_name, len(payload)
                if is_new:
                    head = self._kept_head(topic_name, payload_bytes, qos)
                else:
                    rest_bytes = payload_bytes + 1 if has_properties else payload_bytes
                    head = publish_head(topic_name, rest_bytes, qos, delivery.retain, delivery.dup)
            writer.write(head)
            if qos:
                write_i16_be(writer, i16(packet_id if packet_id < 0x8000 else packet_id - 0x10000))
                packet_id += 1
            if has_section:
                writer.append(0)  # the property length
            writer.write(payload)
            count += 1
        return count, writer.getvalue()

    def columns(self, delivery: Delivery, columns: Columns, bytes_max: int) -> tuple[int, bytes]:
        """As `run`, for messages that a store gave as columns."""
        writer = BytesWriter()
        has_properties = self._has_properties
        section_bytes = 1 if has_properties else 0
        topics, payloads = columns.topics, columns.payloads
        qos, retain, dup, packet_id = delivery.qos, delivery.retain, delivery.dup, delivery.packet_id
        count = len(topics)
        for row in range(count):
            if len(writer) > bytes_max:
                return row, writer.getvalue()
            payload = payloads[row]
            write_publish_head(writer, topics[row], section_bytes + len(payload), qos, retain, dup)
            if qos:
                write_i16_be(writer, i16(packet_id if packet_id < 0x8000 else packet_id - 0x10000))
                packet_id += 1
            if has_properties:
                writer.append(0)
            writer.write(payload)
        return count, writer.getvalue()

    def _kept_head(self, topic_name: str, payload_bytes: int, qos: int) -> bytes:
        try:
            return self.heads[qos][payload_bytes][topic_name]
        except (IndexError, KeyError):
            return self.head(topic_name, payload_bytes, qos)

    def _forget_heads(self) -> None:
        self._heads_count = 0
        for by_length in self.heads:
            for by_topic_name in by_length:
                by_topic_name.clear()


@final
class Encodings:
    """What the connections of a server share: encoded messages, for each dialect, and valid topic names."""

    def __init__(self, is_reused: bool = True) -> None:
        self.topic_names: Final = TopicNames()
        self._by_level: Final[dict[int, EncodedMessages]] = {}
        self._is_reused: Final = is_reused

    def of(self, dialect: Dialect) -> EncodedMessages:
        """What the connections of a dialect share."""
        found = self._by_level.get(dialect.level)
        if found is None:
            found = self._by_level[dialect.level] = EncodedMessages(dialect, self._is_reused)
        return found


def joined(parts: list[bytes]) -> list[bytes]:
    """Parts of the output as few writes: what is small is joined, what is large is not copied."""
    writes: list[bytes] = []
    small: list[bytes] = []
    for part in parts:
        if len(part) < SHARED_BYTES_MIN:
            small.append(part)
            continue
        if small:
            writes.append(b"".join(small))
            small.clear()
        writes.append(part)
    if small:
        writes.append(b"".join(small))
    return writes
