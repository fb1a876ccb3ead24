"""The queue of a persistent session: entries in the state, messages in the log.

Owns: pushing to, reading from and acknowledging in one session's queue.
Never: a copy of a message, except where the log is not sure to keep the record there is.
"""

from typing import Final, final

from librt.strings import read_i64_le

from embermq.protocol.message_expiry import message_expires_us, with_remaining_expiry
from embermq.protocol.packets import Delivery, Publish, packet_id_of
from embermq.store.engines.open_group import OpenGroup, QueueTail
from embermq.store.errors import StoreError
from embermq.store.interface import Queue
from embermq.store.log.blocks import Block
from embermq.store.log.writer import Log
from embermq.store.records import QUEUE_ENTRY_BYTES, Released, RetainedCopy, queue_entry
from embermq.store.rows import QOS_MASK, RETAIN_FLAG
from embermq.store.state.sessions import SessionState

READ_BYTES: Final = 1024 * 1024
"""About how many bytes of payload one read gives: as many messages as may be asked for could fill the memory."""

ENTRIES_AHEAD: Final = 2_048
"""How many entries, of 8 bytes each, are read at a time and kept for the next reads."""

_NO_IDS: Final[dict[int, tuple[int, ...]]] = {}


@final
class SessionQueue(Queue):
    """One session's queue."""

    __slots__ = ("_entries", "_entries_after", "_log", "_open", "_read_bytes", "_released", "_sessions", "_tail")

    def __init__(
        self,
        tail: QueueTail,
        released: set[int],
        open_group: OpenGroup,
        sessions: SessionState,
        log: Log,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._tail: Final = tail
        self._released: Final = released
        self._open: Final = open_group
        self._sessions: Final = sessions
        self._log: Final = log
        self._read_bytes: Final = read_bytes
        self._entries = b""  # as `queue_entry` makes them: those that were read and whose messages were not
        self._entries_after = 0  # the sequence number before the first of them

    def push(
        self, message: Publish, offset: int, qos: int, retain: bool, subscription_ids: tuple[int, ...] = ()
    ) -> int:
        open_group = self._open
        if offset < open_group.reference_floor or offset < 0:
            properties = with_remaining_expiry(message.properties, message.expires_us, open_group.now_us)
            copy = Publish(message.topic_name, message.payload, message.qos, message.retain, properties=properties)
            offset = open_group.append(RetainedCopy(copy))
        return open_group.push(self._tail, queue_entry(offset, qos, retain), subscription_ids)

    def read(self, after_sequence: int, limit: int) -> list[Delivery]:
        after_sequence = max(after_sequence, self._tail.acknowledged)
        limit = min(limit, self._tail.durable - after_sequence)
        if limit <= 0:
            return []
        skip = after_sequence - self._entries_after
        if skip < 0 or len(self._entries) < (skip + limit) * QUEUE_ENTRY_BYTES:
            self._read_entries(after_sequence, limit)
            skip = 0
        ids = _NO_IDS
        if self._tail.has_ids:
            ids = self._sessions.queue_ids(self._tail.session_id, after_sequence, limit)
        deliveries = self._deliveries(skip * QUEUE_ENTRY_BYTES, limit, after_sequence, ids)
        if len(self._entries) <= (skip + len(deliveries)) * QUEUE_ENTRY_BYTES:
            self._entries = b""  # none is left
        return deliveries

    def _read_entries(self, after_sequence: int, limit: int) -> None:
        """More of them than messages are asked for: what a read costs is mostly the search for its beginning."""
        session_id = self._tail.session_id
        ahead = max(limit, min(ENTRIES_AHEAD, self._tail.durable - after_sequence))
        entries = self._sessions.queue_entries(session_id, after_sequence, ahead)
        if len(entries) < limit:
            raise StoreError(f"session {session_id} is owed messages after {after_sequence} that are not there")
        self._entries = entries.tobytes()
        self._entries_after = after_sequence

    def _deliveries(self, at: int, limit: int, sequence: int, ids: dict[int, tuple[int, ...]]) -> list[Delivery]:
        """The messages of up to `limit` entries from `at` on; the first is the one behind `sequence`.

        As many of them as make `read_bytes` of payload, at least one.
        """
        deliveries: list[Delivery] = []
        entries = self._entries
        released = self._released
        size_bytes = 0
        block: Block | None = None
        topic = b""
        topic_name = ""
        for entry_at in range(at, at + limit * QUEUE_ENTRY_BYTES, QUEUE_ENTRY_BYTES):
            entry: int = read_i64_le(entries, entry_at)
            offset = entry >> 3
            if block is None or not block.first_offset <= offset < block.next_offset:
                block = self._block(offset)
            if not block.has_topic(offset, topic):  # most queues have many messages of one topic
                topic = block.topic(offset)
                topic_name = topic.decode()
            message = _message(block, offset, topic_name)
            sequence += 1
            deliveries.append(
                Delivery(
                    [message],
                    entry & QOS_MASK,
                    entry & RETAIN_FLAG != 0,
                    False,
                    packet_id_of(sequence),
                    ids.get(sequence, ()) if ids else (),
                    sequence,
                    sequence in released if released else False,
                )
            )
            size_bytes += len(message.payload)
            if size_bytes >= self._read_bytes:
                break
        return deliveries

    def _block(self, offset: int) -> Block:
        block = self._log.block(offset)
        if block is None:
            raise StoreError(f"session {self._tail.session_id} is owed the message at {offset}, which is not there")
        return block

    def release(self, sequence: int) -> None:
        self._released.add(sequence)
        self._open.append(Released(self._tail.session_id, sequence))

    def acknowledge(self, sequence: int) -> None:
        tail = self._tail
        sequence = min(sequence, tail.last)
        if sequence <= tail.acknowledged:
            return
        if self._released:
            self._released.difference_update(range(tail.acknowledged + 1, sequence + 1))
        self._open.acknowledge(tail, sequence)

    def acknowledged(self) -> int:
        return self._tail.acknowledged

    def last(self) -> int:
        return self._tail.last

    def oldest_owed_offset(self) -> int:
        if self._tail.acknowledged >= self._tail.durable:
            return 0
        entries = self._sessions.queue_entries(self._tail.session_id, self._tail.acknowledged, 1)
        return entries[0] >> 3 if entries else 0

    def log_bytes(self) -> int:
        offset = self.oldest_owed_offset()
        return self._log.bytes_from(offset) if offset else 0


def _message(block: Block, offset: int, topic_name: str) -> Publish:
    flags = block.flags(offset)
    payload = block.payload(offset)
    properties = block.properties(offset)
    if not properties:
        return Publish(topic_name, payload, flags & QOS_MASK, flags & RETAIN_FLAG != 0)
    expires_us = message_expires_us(properties, block.timestamps_us[offset - block.first_offset])
    return Publish(topic_name, payload, flags & QOS_MASK, flags & RETAIN_FLAG != 0, False, 0, properties, expires_us)
