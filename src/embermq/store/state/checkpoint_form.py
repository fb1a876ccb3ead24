"""The state as the records of a checkpoint, and a state made from these (docs/log-format.md, "Checkpoints").

Owns: which records stand for what the state holds, and applying them to an empty state, which makes the same one.
Never: the file; nor the history before the checkpoint, which ends with the records that it came from.
"""

from collections.abc import Iterator
from typing import Final, final

from embermq.protocol.packets import Publish
from embermq.store.budgets import NOT_RETAINED
from embermq.store.records import (
    CHUNK,
    CLIENT,
    EXPIRES,
    ID,
    IDS,
    QUEUE_ENTRY_BYTES,
    SESSIONS,
    SESSIONS_END,
    SHARED,
    SHARED_END,
    SPACE_AT,
    WILLS,
    WILLS_END,
    Acknowledged,
    LoggedRecord,
    Published,
    Queued,
    SharedQueueOpened,
    opened_session,
    session_key,
    stored_record,
    stored_will,
)
from embermq.store.rows import Kind, LogRow
from embermq.store.state.retained import RetainedState, put_totals
from embermq.store.state.retained_keys import EXPIRY, INSTANT, RETAINED, RETAINED_END, SEPARATOR, history_key
from embermq.store.state.retained_values import EXPIRING, REFERENCE, packed_row, unpack_retained
from embermq.store.state.rocks import Rocks
from embermq.store.state.sessions import SessionState
from embermq.store.state.write_buffer import Batch, StateIterator

KEYS_END: Final = b"\xff"


@final
class StateView:
    """The state as it is now, whatever is applied later. Release it before the database is closed."""

    def __init__(self, rocks: Rocks) -> None:
        rocks.write_buffered()  # what is buffered an iterator sees in one key space only
        # An iterator sees the database as it was when the iterator was made.
        self._seen: StateIterator = rocks.iterator(KEYS_END)
        self._lookup: StateIterator = rocks.iterator(KEYS_END)

    def rows(self, timestamp_us: int) -> Iterator[LogRow]:
        """All records as rows, each with its offset in the log, or 0.

        Those whose instant the state does not know have `timestamp_us`.
        """
        for offset, instant_us, record in self.records():
            yield record.row(offset, instant_us or timestamp_us)

    def records(self) -> Iterator[LoggedRecord]:
        """All records."""
        shared: set[int] = set()
        for key, share_filter in self._items(SHARED, SHARED_END):
            queue_id = int.from_bytes(key[len(SHARED) :], "big")
            shared.add(queue_id)
            yield LoggedRecord(0, 0, SharedQueueOpened(queue_id, share_filter.decode()))
        for key, value in self._items(RETAINED, RETAINED_END):
            yield _retained(key, value)
        yield from self._sessions(shared)
        for key, value in self._items(WILLS, WILLS_END):
            yield LoggedRecord(0, 0, stored_will(key, value))

    def _items(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        iterator = self._seen
        iterator.seek(low)
        while iterator.valid():
            key: bytes = iterator.key()
            if key >= high:
                return
            yield key, iterator.value()
            iterator.next()

    def _sessions(self, shared: set[int]) -> Iterator[LoggedRecord]:
        """Keys of a session that is gone (written after its end) are passed over."""
        current, is_there = -1, False
        client_id = ""
        acknowledged = 0
        for key, value in self._items(SESSIONS, SESSIONS_END):
            (session_id,) = ID.unpack_from(key, 1)
            space = key[SPACE_AT : SPACE_AT + 1]
            if session_id != current:
                current, acknowledged, client_id = session_id, 0, ""
                is_there = session_id in shared or space == CLIENT
            if not is_there:
                continue
            if space == CLIENT:
                opened = opened_session(session_id, value, self._get(session_key(session_id, EXPIRES)))
                client_id = opened.client_id
                yield LoggedRecord(0, 0, opened)
            elif space == CHUNK:
                first_sequence = int.from_bytes(key[SPACE_AT + 1 :], "big")
                if first_sequence + len(value) // QUEUE_ENTRY_BYTES - 1 > acknowledged:
                    ids = self._get(session_key(session_id, IDS) + key[SPACE_AT + 1 :]) or b""
                    yield LoggedRecord(0, 0, Queued(session_id, first_sequence, value, ids))
            else:
                stored = stored_record(session_id, client_id, key, value)
                if stored is not None:
                    if isinstance(stored.record, Acknowledged):
                        acknowledged = stored.record.sequence
                    yield stored

    def _get(self, key: bytes) -> bytes | None:
        self._lookup.seek(key)
        if not self._lookup.valid() or self._lookup.key() != key:
            return None
        value: bytes = self._lookup.value()
        return value


def _retained(key: bytes, value: bytes) -> LoggedRecord:
    found = unpack_retained(key[len(RETAINED) :], value)
    message = Publish(found.topic_name, found.payload, found.qos, True, properties=found.properties)
    return LoggedRecord(found.offset, found.timestamp_us, Published(message, found.client_id))


@final
class Restoration:
    """Fills an empty state: `stage` and, once that is written, `count` for each group; `finish` adds the totals."""

    def __init__(self, retained: RetainedState, sessions: SessionState) -> None:
        self._retained: Final = retained
        self._sessions: Final = sessions
        self._account: Final = retained.account()
        self._expiry: Final = retained.expiry
        self._count = 0
        self._size_bytes = 0

    def stage(self, batch: Batch, rows: list[LogRow]) -> None:
        """Put in the batch what these records say."""
        others: list[LogRow] = []
        for row in rows:
            if row.kind == Kind.PUBLISH:
                self._stage_retained(batch, row)
            else:
                others.append(row)
        if others:
            self._sessions.stage(batch, others)

    def _stage_retained(self, batch: Batch, row: LogRow) -> None:
        key = row.topic.replace(b"/", SEPARATOR)
        change = REFERENCE
        expires_us = self._expiry.expires_us(row.topic.decode(), row.properties, row.timestamp_us)
        if expires_us:
            batch.put(EXPIRY + INSTANT.pack(expires_us) + key, b"")
            change = EXPIRING + expires_us.to_bytes(8, "little")
        batch.put(RETAINED + key, packed_row(row, expires_us))
        batch.put(history_key(key, row.timestamp_us, row.offset), change)

    def count(self, rows: list[LogRow]) -> None:
        """Count the retained messages of these records."""
        for row in rows:
            if row.kind == Kind.PUBLISH:
                size_bytes = len(row.topic) + len(row.payload)
                self._account.change(row.topic.decode(), NOT_RETAINED, size_bytes)
                self._count += 1
                self._size_bytes += size_bytes

    def finish(self, batch: Batch) -> None:
        """Put the totals in the batch; `RetainedState.load` takes them from there."""
        put_totals(batch, self._count, self._size_bytes, self._account)
