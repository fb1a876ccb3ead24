"""A topic whose retained message has changed since the write buffer was last written to the database.

Owns: the newest message of the topic, its changes meanwhile, and the entries that the database gets for them.
Never: what a group changes, or how large the messages are together; `retained` knows that.
To note a change costs a fraction of what its entries cost. They are made when the buffer is read by a range or written,
and of a topic that has changed several times until then, the last message alone is made.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i64_be

from embermq.store.rows import LogRow
from embermq.store.state.retained_keys import CHANGED_AT, EXPIRY, HISTORY, INSTANT, RETAINED, TERMINATOR, history_key_of
from embermq.store.state.retained_sizes import ABSENT, UNKNOWN, known
from embermq.store.state.retained_values import CLEARED, EXPIRING, REFERENCE, SERIES, SERIES_CHANGES_MAX, packed_row

TOPIC_BYTES: Final = 96  # about what the entries of a topic have beside its name, twice, and its message
CHANGE_BYTES: Final = CHANGED_AT.size

_SERIES_BYTES_MAX: Final = (SERIES_CHANGES_MAX - 1) * CHANGE_BYTES


@final
class ChangedTopic:
    """The newest message of a topic, and its changes."""

    def __init__(self, key: bytes, size_bytes: int, is_stored: bool) -> None:
        self.key: Final = key
        self.size_bytes = size_bytes  # of its message, as totals count it, or `NOT_RETAINED`
        self._is_stored: Final = is_stored  # whether the database may have a message
        self._message: LogRow | None = None  # None: nothing is retained
        self._expires_us = 0
        # The series that the next change may belong to: its first change (offset 0: there is none) and those after it.
        self._first_us = 0
        self._first_offset = 0
        self._series: BytesWriter | None = None
        self._changes: list[tuple[bytes, bytes]] | None = None  # instant and value of those before the series

    def retain(self, row: LogRow, expires_us: int, size_bytes: int) -> int:
        """It has another message; returns by how many bytes that makes its entries larger, about."""
        added = CHANGE_BYTES + len(row.payload) + len(row.properties) + len(row.client_id)
        before = self._message
        if before is not None:
            added -= len(before.payload) + len(before.properties) + len(before.client_id)
        if expires_us:
            self._add_change(row, EXPIRING + expires_us.to_bytes(8, "little"))
        else:
            self._refer(row.timestamp_us, row.offset)
        self._message = row
        self._expires_us = expires_us
        self.size_bytes = size_bytes
        return added

    def clear(self, row: LogRow, size_bytes: int) -> int:
        """It has no message any more; returns the same."""
        self._add_change(row, CLEARED)
        self._message = None
        self.size_bytes = size_bytes
        return CHANGE_BYTES + len(self.key)

    def _refer(self, timestamp_us: int, offset: int) -> None:
        """Add a change that refers to the log, whose message does not expire."""
        if self._first_offset:
            series = self._series
            if series is None:
                series = self._series = BytesWriter()
            if len(series) < _SERIES_BYTES_MAX:
                write_i64_be(series, timestamp_us)
                write_i64_be(series, offset)
                return
            self._end_series()
        self._first_us = timestamp_us
        self._first_offset = offset

    def _add_change(self, row: LogRow, change: bytes) -> None:
        """Add any other change."""
        self._end_series().append((CHANGED_AT.pack(row.timestamp_us, row.offset), change))

    def _end_series(self) -> list[tuple[bytes, bytes]]:
        changes = self._changes
        if changes is None:
            changes = self._changes = []
        if self._first_offset:
            series = self._series
            value = REFERENCE if series is None else SERIES + series.getvalue()
            changes.append((CHANGED_AT.pack(self._first_us, self._first_offset), value))
            self._first_offset = 0
            self._series = None
        return changes

    def message(self) -> bytes | None:
        """The message, packed; None if nothing is retained."""
        row = self._message
        return None if row is None else packed_row(row, self._expires_us)

    def known(self) -> int:
        """What `Sizes` remembers of it."""
        row = self._message
        if row is None:
            return ABSENT
        return UNKNOWN if self._expires_us else known(row.offset, self.size_bytes)

    def add_history(self, escaped: bytes, keys: list[bytes], values: list[bytes | None]) -> None:
        """Add the entries of its changes; `escaped` is its key as they have it."""
        if self._changes is None and self._series is None:  # as of most topics where there are many
            keys.append(history_key_of(escaped, self._first_us, self._first_offset))
            values.append(REFERENCE)
            return
        prefix = HISTORY + escaped + TERMINATOR
        for instant, change in self._end_series():
            keys.append(prefix + instant)
            values.append(change)

    def add_message(self, keys: list[bytes], values: list[bytes | None]) -> None:
        """Add the entries of its message, or that it has none."""
        message = self.message()
        if message is not None or self._is_stored:
            keys.append(RETAINED + self.key)
            values.append(message)
        if message is not None and self._expires_us:
            keys.append(EXPIRY + INSTANT.pack(self._expires_us) + self.key)
            values.append(b"")
