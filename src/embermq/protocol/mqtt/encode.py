"""Packets to the bytes of a stream, and bytes that are used again for several receivers of one message.

Owns: the encoder (the dialect's table of writers), and `Encodings`, the only place where encoded bytes are kept.
Never: a socket, a connection.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i16_be
from mypy_extensions import i16

from embermq.protocol.mqtt.dialect import MQTT_311, Dialect
from embermq.protocol.mqtt.writers import publish_head, write_publish_head
from embermq.protocol.packets import Delivery, Packet, Publish

SHARED_BYTES_MIN: Final = 64 * 1024
"""From here on a payload is handed to the socket as it is, for all receivers: a copy for each could fill the memory."""
RUN_PAYLOAD_BYTES_MAX: Final = 1_024
"""A longer one is not copied into a run: what the session keeps until it is acknowledged would be in memory twice."""


def encode(packet: Packet, dialect: Dialect = MQTT_311) -> bytes:
    """Any packet as bytes for a peer of a dialect; b"" if the dialect cannot express it."""
    writer = dialect.writers.get(type(packet))
    if writer is None:
        raise TypeError(f"{type(packet).__name__} is no control packet of {dialect.name}")
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
    Applies if `is_reused`; else nothing is kept, and every call encodes. In MQTT 5 `forwarded` does not apply to a
    message that expires, and `heads` apply to messages without properties: a property length of 0 follows them.
    """

    __slots__ = (
        "message",
        "forwarded",
        "heads",
        "_forward_heads",
        "_heads_count",
        "_large_message",
        "_large",
        "_dialect",
        "_is_reused",
        "_has_properties",
    )

    def __init__(self, dialect: Dialect, is_reused: bool) -> None:
        self._dialect: Final = dialect
        self._is_reused: Final = is_reused
        self._has_properties: Final = dialect.has_publish_properties
        lengths = HEADS_PAYLOAD_BYTES_MAX + 1 if self._is_reused else 0
        self.message: Publish | None = None
        self.forwarded = b""
        self.heads: Final[list[list[dict[str, bytes]]]] = [[{} for _ in range(lengths)] for _ in range(3)]
        self._forward_heads: Final = self.heads[0]
        self._heads_count = 0
        self._large_message: Publish | None = None
        self._large = b""

    def keep(self, message: Publish) -> bool:
        """Encode a message at QoS 0 without RETAIN as `forwarded`. False: this does not apply to it."""
        payload = message.payload
        if self._has_properties and message.properties:
            return self._keep_whole(message)
        try:
            frame = self._forward_heads[len(payload)][message.topic_name] + payload
        except (IndexError, KeyError):
            if not self._is_reused or len(payload) >= SHARED_BYTES_MIN:
                return False
            frame = self.head(message.topic_name, len(payload), 0) + payload
        self.message = message
        self.forwarded = frame
        return True

    def _keep_whole(self, message: Publish) -> bool:
        if not self._is_reused or message.expires_us or len(message.payload) >= SHARED_BYTES_MIN:
            return False
        self.forwarded = self.whole(message, False)
        self.message = message
        return True

    def forward(self, message: Publish) -> bytes:
        """The whole PUBLISH at QoS 0 without RETAIN if it cannot be kept as `forwarded`; a large one is kept apart."""
        if not self._is_reused:
            return self.whole(message, False)
        if self._large_message is not message:
            self._large_message = message
            self._large = self.whole(message, False)
        return self._large

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

    def run(self, deliveries: list[Delivery], bytes_max: int) -> tuple[int, bytes]:
        """How many of the first ones, at QoS 1 and 2, are encoded here, and their PUBLISH packets one behind the other.

        Up to one behind which there are more than `bytes_max`, or that has properties, or a long payload.
        """
        writer = BytesWriter()
        has_properties = self._has_properties
        id_bytes = 3 if has_properties else 2  # with the property length
        count = 0
        head = b""
        # Of the message that `head` is of: most queues have many messages of one topic.
        topic_name = ""
        payload_bytes = flags = -1
        for delivery in deliveries:
            message = delivery.message
            payload = message.payload
            if len(writer) > bytes_max or len(payload) > RUN_PAYLOAD_BYTES_MAX:
                break
            if has_properties and (message.properties or delivery.subscription_ids):
                break
            if delivery.retain:  # each of another topic
                first = 0x31 | delivery.qos << 1 | (8 if delivery.dup else 0)
                write_publish_head(writer, first, message.topic_name.encode(), id_bytes + len(payload))
            else:
                delivery_flags = delivery.qos << 1 | (1 if delivery.dup else 0)
                is_same = message.topic_name is topic_name and delivery_flags == flags
                if not is_same or len(payload) != payload_bytes:
                    topic_name, payload_bytes, flags = message.topic_name, len(payload), delivery_flags
                    head = self._head_of(delivery)
                writer.write(head)
            packet_id = delivery.packet_id
            writer.append(packet_id >> 8)
            writer.append(packet_id & 0xFF)
            if has_properties:
                writer.append(0)  # the property length
            writer.write(payload)
            count += 1
        return count, writer.getvalue()

    def messages(self, messages: list[Publish], qos: int, packet_id: int) -> bytes:
        """PUBLISH packets at QoS 1 or 2 without RETAIN and DUP, with identifiers from `packet_id` on.

        b"" if a message has a long payload, or has properties that the dialect can express.
        """
        writer = BytesWriter()
        has_properties = self._has_properties
        head = b""
        topic_name = ""
        payload_bytes = -1
        for message in messages:
            payload = message.payload
            if message.topic_name is not topic_name or len(payload) != payload_bytes:
                topic_name, payload_bytes = message.topic_name, len(payload)
                if payload_bytes > RUN_PAYLOAD_BYTES_MAX:
                    return b""
                head = self._kept_head(topic_name, payload_bytes, qos)
            writer.write(head)
            write_i16_be(writer, i16(packet_id if packet_id < 0x8000 else packet_id - 0x10000))
            packet_id += 1
            if has_properties:
                if message.properties:
                    return b""
                writer.append(0)  # the property length
            writer.write(payload)
        return writer.getvalue()

    def _kept_head(self, topic_name: str, payload_bytes: int, qos: int) -> bytes:
        try:
            return self.heads[qos][payload_bytes][topic_name]
        except (IndexError, KeyError):
            return self.head(topic_name, payload_bytes, qos)

    def _head_of(self, delivery: Delivery) -> bytes:
        """A PUBLISH at QoS 1 or 2 without RETAIN and properties up to its packet identifier."""
        topic_name = delivery.message.topic_name
        payload_bytes = len(delivery.message.payload)
        if delivery.dup:
            rest_bytes = payload_bytes + 1 if self._has_properties else payload_bytes
            return publish_head(topic_name, rest_bytes, delivery.qos, False, True)
        return self._kept_head(topic_name, payload_bytes, delivery.qos)

    def whole(self, message: Publish, retain: bool) -> bytes:
        """The whole PUBLISH at QoS 0, encoded by the general path."""
        packet = Publish(message.topic_name, message.payload, 0, retain, properties=message.properties)
        return encode(packet, self._dialect)

    def _forget_heads(self) -> None:
        self._heads_count = 0
        for by_length in self.heads:
            for by_topic_name in by_length:
                by_topic_name.clear()


@final
class Encodings:
    """The encoded messages of all connections of a server, one for each dialect."""

    __slots__ = ("_by_level", "_is_reused")

    def __init__(self, is_reused: bool = True) -> None:
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
