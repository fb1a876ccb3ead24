"""The queue of a persistent session: offsets in the state, messages in the log.

Owns: what was pushed and acknowledged since the last commit, and the sequence numbers of one session.
Never: a copy of a message, except where the log is not sure to keep the one there is.
"""

from array import array
from typing import Final, final

from embermq.protocol.packets import Delivery, Publish
from embermq.store.errors import StoreError
from embermq.store.interface import Queue, packet_id_of
from embermq.store.log.blocks import Record
from embermq.store.log.records import QOS_MASK, RECORD_OVERHEAD_BYTES, RETAIN_FLAG, SESSION_SEQUENCE, Kind, queue_entry
from embermq.store.log.writer import Log
from embermq.store.open_group import OpenGroup
from embermq.store.state.sessions import ENTRY_BYTES, SessionState

READ_BYTES: Final = 1024 * 1024
"""About how many bytes of payload are read at a time: so many messages as may be asked for could fill the memory."""


@final
class StateQueue(Queue):
    """One session's queue. `durable`: the newest sequence number that may be read."""

    __slots__ = (
        "_acknowledged",
        "_acknowledged_sealed",
        "_last",
        "_log",
        "_open",
        "_pushed",
        "_released",
        "_sessions",
        "durable",
        "session_id",
    )

    def __init__(
        self,
        session_id: int,
        acknowledged: int,
        last: int,
        released: set[int],
        open_group: OpenGroup,
        sessions: SessionState,
        log: Log,
    ) -> None:
        self.session_id: Final = session_id
        self._acknowledged = acknowledged
        self._acknowledged_sealed = acknowledged
        self._last = last
        self.durable = last
        self._released: Final = released
        self._pushed = array("Q")  # entries of the open group
        self._open: Final = open_group
        self._sessions: Final = sessions
        self._log: Final = log

    def push(self, message: Publish, offset: int, qos: int, retain: bool) -> int:
        open_group = self._open
        if offset < open_group.reference_floor or offset < 0:
            flags = message.qos | (RETAIN_FLAG if message.retain else 0)
            topic = message.topic_name.encode()
            offset = open_group.append(Kind.RETAINED_COPY, flags, topic, message.payload, b"", message.properties)
        open_group.touched[self.session_id] = self
        open_group.lasting = open_group.shown = True
        open_group.group.size_bytes += ENTRY_BYTES
        self._pushed.append(queue_entry(offset, qos, retain))
        self._last += 1
        return self._last

    def read(self, after_sequence: int, limit: int) -> list[Delivery]:
        after_sequence = max(after_sequence, self._acknowledged)
        limit = min(limit, self.durable - after_sequence)
        if limit <= 0:
            return []
        entries = self._sessions.queue_entries(self.session_id, after_sequence, limit)
        if len(entries) < limit:
            raise StoreError(f"session {self.session_id} is owed messages after {after_sequence} that are not there")
        records = self._records(entries)
        released = self._released
        return [
            Delivery(
                _message(record),
                entry & QOS_MASK,
                bool(entry & RETAIN_FLAG),
                packet_id=packet_id_of(sequence),
                sequence=sequence,
                released=sequence in released,
            )
            for sequence, (entry, record) in enumerate(zip(entries, records, strict=False), after_sequence + 1)
        ]

    def _records(self, entries: "array[int]") -> list[Record]:
        """As many of them as make `READ_BYTES`, at least one."""
        records: list[Record] = []
        size_bytes = 0
        for entry in entries:
            record = self._log.read(entry >> 3)
            if record is None:
                raise StoreError(f"session {self.session_id} is owed the message at {entry >> 3}, which is not there")
            records.append(record)
            size_bytes += len(record.payload)
            if size_bytes >= READ_BYTES:
                break
        return records

    def release(self, sequence: int) -> None:
        self._released.add(sequence)
        self._open.append(Kind.RELEASED, 0, b"", SESSION_SEQUENCE.pack(self.session_id, sequence), b"")
        self._open.lasting = True

    def acknowledge(self, sequence: int) -> None:
        sequence = min(sequence, self._last)
        if sequence <= self._acknowledged:
            return
        if self._released:
            self._released.difference_update(range(self._acknowledged + 1, sequence + 1))
        self._acknowledged = sequence
        if self.session_id not in self._open.touched:
            self._open.touched[self.session_id] = self
            # Its record is made when the group is sealed: until then a group of nothing else must not look empty.
            self._open.group.size_bytes += RECORD_OVERHEAD_BYTES

    def acknowledged(self) -> int:
        return self._acknowledged

    def last(self) -> int:
        return self._last

    def seal(self) -> int:
        """Add to the open group what happened here since the last time; returns the newest sequence number."""
        if self._pushed:
            head = SESSION_SEQUENCE.pack(self.session_id, self._last - len(self._pushed) + 1)
            self._open.append(Kind.QUEUED, 0, b"", head + self._pushed.tobytes(), b"")
            self._pushed = array("Q")
        if self._acknowledged > self._acknowledged_sealed:
            position = SESSION_SEQUENCE.pack(self.session_id, self._acknowledged)
            self._open.append(Kind.ACKNOWLEDGED, 0, b"", position, b"")
            self._acknowledged_sealed = self._acknowledged
        return self._last


def _message(record: Record) -> Publish:
    return Publish(
        record.topic.decode(),
        record.payload,
        record.flags & QOS_MASK,
        bool(record.flags & RETAIN_FLAG),
        False,
        0,
        record.properties,
    )
