"""A retained message, and a change of one, as the bytes that the state keeps.

Owns: both layouts, and a piece of messages that stay packed.
"""

from struct import Struct
from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le

from embermq.store.interface import MIXED, Retained, RetainedPiece
from embermq.store.rows import QOS_MASK, LogRow, write_length
from embermq.store.state.retained_keys import SEPARATOR

HEAD: Final = Struct("<QQQBHI")  # offset, timestamp (us), expires (us, 0 never), qos, lengths: client id, properties;
# as `packed_row` writes them. The same for `unpack_retained`, where unpacking to objects would be half of its time:
_OFFSET_AT: Final = 0
_TIMESTAMP_AT: Final = 8
_EXPIRES_AT: Final = 16
_QOS_AT: Final = 24
_CLIENT_ID_BYTES_AT: Final = 25
_PROPERTY_BYTES_AT: Final = 27
_HEAD_BYTES: Final = 31
# What a change of a topic made of its retained message, as the first byte of its value.
CLEARED: Final = b"\x00"
REFERENCE: Final = b"\x01"  # to the record in the log
COPY: Final = b"\x02"  # then the message, packed
EXPIRING: Final = b"\x03"  # as REFERENCE; then when the message expires
SERIES: Final = b"\x04"  # REFERENCE, as are the changes that follow; then those: see `changes`
SERIES_CHANGES_MAX: Final = 256
"""Of one series: a reader who wants one of them reads all, 4 KiB."""


def packed_row(row: LogRow, expires_us: int = 0) -> bytes:
    """The retained message that a record makes, as the state keeps it."""
    writer = BytesWriter()
    write_i64_le(writer, row.offset)
    write_i64_le(writer, row.timestamp_us)
    write_i64_le(writer, expires_us)
    writer.append(row.flags & QOS_MASK)
    write_length(writer, len(row.client_id))
    write_i32_le(writer, len(row.properties))
    writer.write(row.client_id)
    writer.write(row.properties)
    writer.write(row.payload)
    return writer.getvalue()


def unpack_retained(key: bytes, value: bytes) -> Retained:
    """The message of a topic key."""
    return _unpacked(key.replace(SEPARATOR, b"/"), value)


def _unpacked(topic: bytes, value: bytes) -> Retained:
    client_id_end = _HEAD_BYTES + (value[_CLIENT_ID_BYTES_AT] | value[_CLIENT_ID_BYTES_AT + 1] << 8)
    payload_at = client_id_end + read_i32_le(value, _PROPERTY_BYTES_AT)
    return Retained(
        topic,
        value[payload_at:],
        value[_QOS_AT],
        value[client_id_end:payload_at],
        read_i64_le(value, _OFFSET_AT),
        read_i64_le(value, _TIMESTAMP_AT),
        value[_HEAD_BYTES:client_id_end],
        read_i64_le(value, _EXPIRES_AT),
    )


def retained_of(row: LogRow, expires_us: int) -> Retained:
    """A record of a retained message, as it is given to readers."""
    return Retained(
        row.topic,
        row.payload,
        row.flags & QOS_MASK,
        row.properties,
        row.offset,
        row.timestamp_us,
        row.client_id,
        expires_us,
    )


def value_expires_us(value: bytes) -> int:
    """When the message expires; 0: never."""
    return read_i64_le(value, _EXPIRES_AT)


def with_expiry(value: bytes, expires_us: int) -> bytes:
    """The same message, which expires at an instant."""
    return value[:16] + expires_us.to_bytes(8, "little") + value[24:]


def value_offset(value: bytes) -> int:
    """Where in the log the message is."""
    return read_i64_le(value, _OFFSET_AT)


def value_size(key: bytes, value: bytes) -> int:
    """Its bytes as totals and budgets count them: topic and payload."""
    _, _, _, _, client_id_bytes, property_bytes = HEAD.unpack_from(value)
    size_bytes: int = len(key) + len(value) - HEAD.size - client_id_bytes - property_bytes
    return size_bytes


@final
class PackedMessages:
    """Retained messages as columns. What else is known of them stays packed; most are sent without it."""

    def __init__(self) -> None:
        self.topics: Final[list[bytes]] = []
        self.payloads: Final[list[bytes]] = []
        self.values: Final[list[bytes]] = []
        self.size_bytes = 0  # of topic names and payloads
        self.has_properties = False
        self.offset_max = 0
        self.qos_min = 2
        self.qos_max = 0

    def add(self, state_key: bytes, value: bytes) -> None:
        """A message, with its key in the state: a byte before the topic key."""
        topic = state_key[1:].replace(SEPARATOR, b"/")
        property_bytes = read_i32_le(value, _PROPERTY_BYTES_AT)
        client_id_bytes = value[_CLIENT_ID_BYTES_AT] | value[_CLIENT_ID_BYTES_AT + 1] << 8
        payload = value[_HEAD_BYTES + client_id_bytes + property_bytes :]
        self.topics.append(topic)
        self.payloads.append(payload)
        self.values.append(value)
        self.size_bytes += len(topic) + len(payload)
        qos = value[_QOS_AT]
        if qos < self.qos_min:
            self.qos_min = qos
        if qos > self.qos_max:
            self.qos_max = qos
        offset = read_i64_le(value, _OFFSET_AT)
        if offset > self.offset_max:
            self.offset_max = offset
        if property_bytes:
            self.has_properties = True


@final
class PackedPiece(RetainedPiece):
    """A piece of messages that are unpacked only if they are asked for one by one."""

    def __init__(self, packed: PackedMessages, after_topic_name: str, done: bool) -> None:
        super().__init__([], after_topic_name, done, packed.size_bytes, 0)
        self._packed: Final = packed

    def __len__(self) -> int:
        return len(self._packed.topics)

    def found(self) -> list[Retained]:
        if not self._found:
            packed = self._packed
            self._found = [_unpacked(topic, value) for topic, value in zip(packed.topics, packed.values, strict=True)]
        return self._found

    def topics(self) -> list[bytes]:
        return self._packed.topics

    def payloads(self) -> list[bytes]:
        return self._packed.payloads

    def queued_bytes(self, first: int, end: int) -> int:
        size = len(b"".join(self._packed.topics[first:end]).decode())
        for payload in self._packed.payloads[first:end]:
            size += len(payload)
        return size

    def sent_qos(self, before_offset: int, granted: int) -> int:
        packed = self._packed
        if not packed.topics or packed.has_properties or packed.offset_max >= before_offset:
            return MIXED
        lowest = min(packed.qos_min, granted)
        return lowest if lowest == min(packed.qos_max, granted) else MIXED
