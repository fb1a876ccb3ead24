"""Records: what the log is made of, as the columns of a commit group, and the few bytes inside a record.

Owns: the kinds, the flags, and the packing of the payloads of those records that are not messages (docs/log-format.md).
Never: a file. `log` writes groups, `state` applies them, `spark` reads the columns.
All numbers are little-endian: the columns are read as arrays on the machines that run this.
"""

from enum import IntEnum
from itertools import accumulate
from struct import Struct
from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i16_le, write_i32_le, write_i64_le
from mypy_extensions import i16, i32, i64

from embermq.protocol.mqtt.fields import ONE_BYTE, Fields, variable_byte_integer

QOS_MASK: Final = 0b11
RETAIN_FLAG: Final = 0b100
DUP_FLAG: Final = 0b1000

# The flags of SUBSCRIBED: the options of MQTT 5 (3.8.3.1), and whether retained messages are owed for it.
NO_LOCAL_FLAG: Final = 0b100
RETAIN_AS_PUBLISHED_FLAG: Final = 0b1000
RETAIN_HANDLING_SHIFT: Final = 4
RETAINED_OWED_FLAG: Final = 0b100_0000

_SUBSCRIPTION_ID: Final = 0x0B  # the property identifier (5.0, table 2-4)

RECORD_OVERHEAD_BYTES: Final = 32
"""About what a record costs beside its own bytes: for the bound of a group, not for the file."""


class Kind(IntEnum):
    """What a record says. The numbers are stored: never reuse one."""

    PUBLISH = 1
    RETAINED_REMOVED = 2
    CONNECTED = 3
    DISCONNECTED = 4
    SESSION_OPENED = 5
    SESSION_RESUMED = 6
    SESSION_ENDED = 7
    SUBSCRIBED = 8
    UNSUBSCRIBED = 9
    QUEUED = 10
    RETAINED_COPY = 11
    RELEASED = 12
    ACKNOWLEDGED = 13
    RECEIVED = 14
    PUBREL = 15
    POSITION = 16
    WILL_SET = 17
    WILL_CLEARED = 18
    SESSION_EXPIRY_CHANGED = 19
    SHARED_QUEUE_OPENED = 20
    SHARED_QUEUE_ENDED = 21


_PUBLISH: Final = int(Kind.PUBLISH)

SESSION: Final = Struct("<Q")  # SESSION_ENDED, SUBSCRIBED, UNSUBSCRIBED: session id (0: not persistent);
# SHARED_QUEUE_ENDED: queue id. In records about a queue the id of a shared queue stands for the session's.
SESSION_EXPIRY: Final = Struct("<QI")  # SESSION_OPENED (id 0: its own offset; then the user name), SESSION_RESUMED,
# SESSION_EXPIRY_CHANGED
SESSION_SEQUENCE: Final = Struct("<QQ")  # ACKNOWLEDGED, RELEASED; QUEUED: first sequence, then u64 entries
# of `queue_entry`; DISCONNECTED: newest sequence sent, then the reason as text
SESSION_PACKET: Final = Struct("<QH")  # RECEIVED, PUBREL: session id, packet identifier
SESSION_POSITION: Final = Struct("<QQBB")  # POSITION: session id, before offset, qos, done; then the topic name
WILL: Final = Struct("<QIH")  # WILL_SET: session id, delay in s, length of the user name; then user name and payload


def subscription_id_property(subscription_id: int) -> bytes:
    """The properties of a SUBSCRIBED record: the Subscription Identifier (5.0, 3.8.2.1.2), if there is one."""
    if not subscription_id:
        return b""
    return ONE_BYTE[_SUBSCRIPTION_ID] + variable_byte_integer(subscription_id)


def subscription_id_of(properties: bytes) -> int:
    """The Subscription Identifier in the properties of a SUBSCRIBED record; 0 if there is none."""
    if not properties or properties[0] != _SUBSCRIPTION_ID:
        return 0
    return Fields(properties, 1, len(properties)).variable_byte_integer()


LONG_LENGTH_MAX: Final = 2**31 - 1
"""No column of a block is longer, so that 32-bit Arrow offsets always hold it."""
LENGTH_MAX: Final = 0xFFFF
"""Of a topic name and of a client id, in bytes (5.0, 1.5.4)."""


def write_length(writer: BytesWriter, length: int) -> None:
    """A length of at most `LENGTH_MAX`, in 16 bits."""
    write_i16_le(writer, i16(length if length < 0x8000 else length - 0x10000))


QUEUE_ENTRY_BYTES: Final = 8


def queue_entry(offset: int, qos: int, retain: bool) -> int:
    """One message of a QUEUED record."""
    return offset << 3 | (RETAIN_FLAG if retain else 0) | qos


@final
class Columns:
    """Records as a block has them: the numbers and lengths of each, and their bytes without gaps."""

    __slots__ = (
        "are_in_order",
        "client_id_lengths",
        "client_ids",
        "count",
        "first_timestamp_us",
        "flags",
        "kinds",
        "last_timestamp_us",
        "payload_lengths",
        "payloads",
        "properties",
        "property_lengths",
        "timestamps_us",
        "topic_lengths",
        "topics",
    )

    def __init__(self) -> None:
        self.count = 0
        self.first_timestamp_us = 0
        self.last_timestamp_us = 0
        self.are_in_order = True  # no timestamp is before that of an earlier record
        self.timestamps_us: Final = BytesWriter()
        self.kinds: Final = BytesWriter()
        self.flags: Final = BytesWriter()
        self.topic_lengths: Final = BytesWriter()
        self.topics: Final = BytesWriter()
        self.client_id_lengths: Final = BytesWriter()
        self.client_ids: Final = BytesWriter()
        self.property_lengths: Final = BytesWriter()
        self.properties: Final = BytesWriter()
        self.payload_lengths: Final = BytesWriter()
        self.payloads: Final = BytesWriter()

    def add(
        self,
        timestamp_us: int,
        kind: int,
        flags: int,
        topic: bytes,
        payload: bytes,
        client_id: bytes,
        properties: bytes,
    ) -> None:
        """Add one record, or nothing of it if a part of it is too long."""
        topic_bytes: i64 = len(topic)
        client_id_bytes: i64 = len(client_id)
        property_bytes: i64 = len(properties)
        payload_bytes: i64 = len(payload)
        if topic_bytes > LENGTH_MAX or client_id_bytes > LENGTH_MAX:
            raise ValueError(f"a topic or client id has more than {LENGTH_MAX} bytes")
        if payload_bytes > LONG_LENGTH_MAX or property_bytes > LONG_LENGTH_MAX:
            raise ValueError(f"a payload or its properties have more than {LONG_LENGTH_MAX} bytes")
        if not self.count:
            self.first_timestamp_us = timestamp_us
        elif timestamp_us < self.last_timestamp_us:
            self.are_in_order = False
        self.last_timestamp_us = timestamp_us
        self.count += 1
        write_i64_le(self.timestamps_us, timestamp_us)
        self.kinds.append(kind)
        self.flags.append(flags)
        write_i16_le(self.topic_lengths, i16(topic_bytes if topic_bytes < 0x8000 else topic_bytes - 0x10000))
        self.topics.write(topic)
        write_i16_le(
            self.client_id_lengths, i16(client_id_bytes if client_id_bytes < 0x8000 else client_id_bytes - 0x10000)
        )
        self.client_ids.write(client_id)
        write_i32_le(self.property_lengths, i32(property_bytes))
        if property_bytes:
            self.properties.write(properties)
        write_i32_le(self.payload_lengths, i32(payload_bytes))
        self.payloads.write(payload)

    def raise_timestamps(self, floor_us: int) -> None:
        """Let no timestamp be before `floor_us` or that of the record before it."""
        written = self.timestamps_us.getvalue()
        self.timestamps_us.truncate(0)
        self.first_timestamp_us = max(self.first_timestamp_us, floor_us)
        for position in range(0, len(written), 8):
            floor_us = max(floor_us, read_i64_le(written, position))
            write_i64_le(self.timestamps_us, floor_us)
        self.last_timestamp_us = floor_us
        self.are_in_order = True


@final
class Group:
    """A commit group: records in columns, the first of them at `first_offset`.

    `columns` has all of them, ready to be written; None: it is made when the group is written. With it, the lists are
    for the state: they end with the last record that the state asks for, and those before it that it does not ask for
    are empty in them. What was copied once, near the time it came, needs no object.
    """

    __slots__ = (
        "columns",
        "first_offset",
        "timestamps_us",
        "kinds",
        "flags",
        "topics",
        "payloads",
        "client_ids",
        "properties",
        "size_bytes",
    )

    def __init__(self, first_offset: int, columns: Columns | None = None) -> None:
        self.first_offset: Final = first_offset
        self.columns: Final = columns
        self.timestamps_us: list[int] = []
        self.kinds: list[int] = []
        self.flags: list[int] = []
        self.topics: list[bytes] = []
        self.payloads: list[bytes] = []
        self.client_ids: list[bytes] = []
        self.properties: list[bytes] = []
        self.size_bytes = 0

    def __len__(self) -> int:
        columns = self.columns
        return len(self.topics) if columns is None else columns.count

    @property
    def first_timestamp_us(self) -> int:
        columns = self.columns
        return self.timestamps_us[0] if columns is None else columns.first_timestamp_us

    @property
    def last_timestamp_us(self) -> int:
        columns = self.columns
        return self.timestamps_us[-1] if columns is None else columns.last_timestamp_us

    def append(
        self,
        timestamp_us: int,
        kind: int,
        flags: int,
        topic: bytes,
        payload: bytes,
        client_id: bytes,
        properties: bytes = b"",
    ) -> int:
        """Add a record; returns its offset."""
        columns = self.columns
        if columns is not None:
            columns.add(timestamp_us, kind, flags, topic, payload, client_id, properties)
            unlisted = columns.count - 1 - len(self.topics)
            if unlisted:
                self._list_unapplied(unlisted)
        offset = self.first_offset + len(self.topics)
        self.timestamps_us.append(timestamp_us)
        self.kinds.append(kind)
        self.flags.append(flags)
        self.topics.append(topic)
        self.payloads.append(payload)
        self.client_ids.append(client_id)
        self.properties.append(properties)
        self.size_bytes += len(topic) + len(payload) + len(client_id) + len(properties) + RECORD_OVERHEAD_BYTES
        return offset

    def append_row(self, group: "Group", row: int) -> int:
        """Add a record of another group; returns its offset here."""
        return self.append(
            group.timestamps_us[row],
            group.kinds[row],
            group.flags[row],
            group.topics[row],
            group.payloads[row],
            group.client_ids[row],
            group.properties[row],
        )

    def append_unapplied(
        self, timestamp_us: int, flags: int, topic: bytes, payload: bytes, client_id: bytes, properties: bytes
    ) -> int:
        """Add a PUBLISH that changes nothing in the state; returns its offset. Only to a group with `columns`."""
        columns = self.columns
        assert columns is not None
        offset = self.first_offset + columns.count
        columns.add(timestamp_us, _PUBLISH, flags, topic, payload, client_id, properties)
        self.size_bytes += len(topic) + len(payload) + len(client_id) + len(properties) + RECORD_OVERHEAD_BYTES
        return offset

    def raise_timestamps(self, floor_us: int) -> None:
        """Let no timestamp be before `floor_us` or that of the record before it."""
        columns = self.columns
        if columns is None:
            self.timestamps_us = list(accumulate(self.timestamps_us, max, initial=floor_us))[1:]
        else:
            columns.raise_timestamps(floor_us)
            raised = columns.timestamps_us.getvalue()
            self.timestamps_us = [read_i64_le(raised, 8 * row) for row in range(len(self.timestamps_us))]

    def _list_unapplied(self, count: int) -> None:
        """A record that the state asks for follows messages that it does not ask for: its row counts them."""
        empty = [b""] * count
        self.timestamps_us += [0] * count
        self.kinds += [_PUBLISH] * count
        self.flags += [0] * count
        self.topics += empty
        self.payloads += empty
        self.client_ids += empty
        self.properties += empty
