"""Rows: records as the log keeps them, in the columns of a commit group.

Owns: the kinds, the flags of messages, and the columns (docs/log-format.md).
Never: a file, or what a record means: `store.records` has a class for each kind. `spark` reads the columns.
All numbers are little-endian: the columns are read as arrays on the machines that run this.
"""

from enum import IntEnum
from typing import Final, final

from librt.strings import BytesWriter, read_i64_le, write_i16_le, write_i32_le, write_i64_le
from mypy_extensions import i16, i32, i64

QOS_MASK: Final = 0b11
RETAIN_FLAG: Final = 0b100
DUP_FLAG: Final = 0b1000

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


LONG_LENGTH_MAX: Final = 2**31 - 1
"""No column of a block is longer, so that 32-bit Arrow offsets always hold it."""
LENGTH_MAX: Final = 0xFFFF
"""Of a topic name and of a client id, in bytes (5.0, 1.5.4)."""


def write_length(writer: BytesWriter, length: int) -> None:
    """A length of at most `LENGTH_MAX`, in 16 bits."""
    write_i16_le(writer, i16(length if length < 0x8000 else length - 0x10000))


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

    def raise_timestamps(self, floor_us: int) -> bytes:
        """Let no timestamp be before `floor_us` or that of the record before it; returns all of them, packed."""
        written = self.timestamps_us.getvalue()
        self.timestamps_us.truncate(0)
        self.first_timestamp_us = max(self.first_timestamp_us, floor_us)
        for position in range(0, len(written), 8):
            floor_us = max(floor_us, read_i64_le(written, position))
            write_i64_le(self.timestamps_us, floor_us)
        self.last_timestamp_us = floor_us
        self.are_in_order = True
        return self.timestamps_us.getvalue()


@final
class LogRow:
    """One record as the log has it: its offset and its columns."""

    def __init__(
        self,
        offset: int,
        timestamp_us: int,
        kind: int,
        flags: int,
        topic: bytes,
        payload: bytes,
        client_id: bytes,
        properties: bytes = b"",
    ) -> None:
        self.offset: Final = offset
        self.timestamp_us = timestamp_us
        self.kind: Final = kind
        self.flags: Final = flags
        self.topic: Final = topic
        self.payload: Final = payload
        self.client_id: Final = client_id
        self.properties: Final = properties

    def without_client_id(self) -> "LogRow":
        return LogRow(
            self.offset, self.timestamp_us, self.kind, self.flags, self.topic, self.payload, b"", self.properties
        )

    def set_timestamp(self, timestamp_us: int) -> None:
        """Have a later instant than the clock said, as the log asks for before it is written."""
        self.timestamp_us = timestamp_us


@final
class Group:
    """A commit group: records with offsets from `first_offset` on, without a gap.

    `columns` has all of them, ready to be written; those of a group that was read from the log are empty. `rows` has,
    in order, those that the state may ask for: what was copied once, near the time it came, needs no object.
    """

    __slots__ = ("columns", "first_offset", "next_offset", "rows", "size_bytes")

    def __init__(self, first_offset: int, rows: list[LogRow] | None = None) -> None:
        """`rows`: all records of a group that was read from the log."""
        self.first_offset: Final = first_offset
        self.rows: Final = [] if rows is None else rows
        self.next_offset = first_offset + len(self.rows)
        self.columns: Final = Columns()
        self.size_bytes = 0

    def __len__(self) -> int:
        return self.next_offset - self.first_offset

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
        return self.add(LogRow(self.next_offset, timestamp_us, kind, flags, topic, payload, client_id, properties))

    def add(self, row: LogRow) -> int:
        """Add a record that was made for `next_offset`, which it returns."""
        offset = self.append_unapplied(
            row.timestamp_us, row.kind, row.flags, row.topic, row.payload, row.client_id, row.properties
        )
        self.rows.append(row)
        return offset

    def append_unapplied(
        self,
        timestamp_us: int,
        kind: int,
        flags: int,
        topic: bytes,
        payload: bytes,
        client_id: bytes,
        properties: bytes,
    ) -> int:
        """Add a record that changes nothing in the state; returns its offset."""
        self.columns.add(timestamp_us, kind, flags, topic, payload, client_id, properties)
        self.size_bytes += len(topic) + len(payload) + len(client_id) + len(properties) + RECORD_OVERHEAD_BYTES
        offset = self.next_offset
        self.next_offset = offset + 1
        return offset

    def with_columns(self) -> "Group":
        """A group that was read from the log, as one that can be written."""
        written = Group(self.first_offset)
        for row in self.rows:
            written.add(row)
        return written

    def grow(self, size_bytes: int) -> None:
        """Count bytes of a record that is made when the group is closed."""
        self.size_bytes += size_bytes

    def extend(self, later: "Group") -> None:
        """Add the rows of a group that follows this one; both were read from the log."""
        self.rows.extend(later.rows)
        self.next_offset = later.next_offset

    def raise_timestamps(self, floor_us: int) -> None:
        """Let no timestamp be before `floor_us` or that of the record before it."""
        raised = self.columns.raise_timestamps(floor_us)
        for row in self.rows:
            row.set_timestamp(read_i64_le(raised, 8 * (row.offset - self.first_offset)))
