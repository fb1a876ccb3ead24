"""Unpacked changes: what was applied to retained messages and is not made into entries of the write buffer yet.

Owns: the newest message and the changes of each topic meanwhile.
Never: what a group changes, or how large the messages are together; `retained` knows that.
Making the entries costs more than to apply a change. It is done when somebody reads them or when they are written to
the database, and of a topic that has changed several times until then, the last message alone is made.
"""

from typing import Final, final

from librt.strings import BytesWriter, write_i64_be

from embermq.store.state.changes.series import SERIES_CHANGES_MAX
from embermq.store.state.retained_keys import (
    EXPIRY,
    HISTORY,
    INSTANT,
    RETAINED,
    SEPARATOR,
    history_key_of,
)
from embermq.store.state.retained_sizes import ABSENT, UNKNOWN, Sizes, known
from embermq.store.state.retained_values import CLEARED, EXPIRING, REFERENCE, SERIES, packed_message
from embermq.store.state.write_buffer import Batch, KeySpace, LateEntries

_TOPIC_BYTES: Final = 96  # about what the entries of a topic have beside its name, twice, and its message
_CHANGE_BYTES: Final = 16


@final
class UnpackedTopic:
    """The newest message of a topic, and its changes from the first one on that is not packed."""

    __slots__ = (
        "_changes",
        "_escaped",
        "_first_offset",
        "_first_us",
        "_following",
        "_series",
        "client_id",
        "expires_us",
        "is_stored",
        "key",
        "offset",
        "payload",
        "properties",
        "qos",
        "size_bytes",
        "timestamp_us",
    )

    def __init__(self, key: bytes, escaped: bytes, size_bytes: int, is_stored: bool) -> None:
        self.key: Final = key
        self._escaped: Final = escaped
        self.size_bytes = size_bytes  # of its message, as totals count it, or `NOT_RETAINED`
        self.is_stored: Final = is_stored  # whether the database may have a message
        self.payload = b""  # none: nothing is retained
        self.offset = 0
        self.timestamp_us = 0
        self.expires_us = 0
        self.qos = 0
        self.client_id = b""
        self.properties = b""
        # The series that the next change may belong to: its first change (offset 0: there is none) and those after it.
        self._first_us = 0
        self._first_offset = 0
        self._following = 0
        self._series: BytesWriter | None = None
        self._changes: list[tuple[bytes, bytes]] | None = None  # entries that no other change can belong to

    def refer(self, timestamp_us: int, offset: int) -> None:
        """Add a change that refers to the log, whose message does not expire."""
        if self._first_offset:
            if self._following < SERIES_CHANGES_MAX - 1:
                series = self._series
                if series is None:
                    series = self._series = BytesWriter()
                self._following += 1
                write_i64_be(series, timestamp_us)
                write_i64_be(series, offset)
                return
            self._end_series()
        self._first_us = timestamp_us
        self._first_offset = offset

    def add_change(self, timestamp_us: int, offset: int, change: bytes) -> None:
        """Add any other change."""
        self._end_series().append((history_key_of(self._escaped, timestamp_us, offset), change))

    def _end_series(self) -> list[tuple[bytes, bytes]]:
        """All changes so far, as entries."""
        changes = self._changes
        if changes is None:
            changes = self._changes = []
        if self._first_offset:
            key = history_key_of(self._escaped, self._first_us, self._first_offset)
            series = self._series
            changes.append((key, REFERENCE if series is None else SERIES + series.getvalue()))
            self._first_offset = self._following = 0
            self._series = None
        return changes

    def message(self) -> bytes | None:
        """The message, packed; None if nothing is retained."""
        if not self.payload:
            return None
        return packed_message(
            self.offset, self.timestamp_us, self.expires_us, self.qos, self.client_id, self.properties, self.payload
        )

    def known(self) -> int:
        """What `Sizes` remembers of it."""
        if not self.payload:
            return ABSENT
        return UNKNOWN if self.expires_us else known(self.offset, self.size_bytes)

    def fill_history(self, history: KeySpace) -> int:
        """Add its changes; returns their bytes."""
        if self._changes is None and self._series is None:  # as of most topics where there are many
            key = history_key_of(self._escaped, self._first_us, self._first_offset)
            history.new.append(key)
            return len(key)
        size_bytes = 0
        for key, change in self._end_series():
            size_bytes += len(key) + len(change)
            history.entries[key] = change
        return size_bytes


@final
class UnpackedChanges(LateEntries):
    """By topic name, as the log has it."""

    __slots__ = ("_has_expiries", "_replaced", "sizes", "topics")

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.topics: Final[dict[bytes, UnpackedTopic]] = {}
        self._replaced: Final[list[tuple[bytes, bytes | None]]] = []  # entries, before all others
        self._has_expiries = False  # whether any of them may be that of an expiry

    def begin_topic(self, topic: bytes, unpacked: UnpackedTopic) -> None:
        """A topic that has a change, for the first time."""
        self.topics[topic] = unpacked
        self.count += 2
        self.size_bytes += 2 * len(topic) + _TOPIC_BYTES

    def replace(self, key: bytes, value: bytes | None) -> None:
        """An entry (None: it is deleted) because of the message that a topic had until then."""
        self._replaced.append((key, value))
        self._has_expiries = True
        self.count += 1
        self.size_bytes += len(key) + len(value or b"")

    def retain(
        self,
        topic: UnpackedTopic,
        timestamp_us: int,
        offset: int,
        expires_us: int,
        qos: int,
        client_id: bytes,
        properties: bytes,
        payload: bytes,
    ) -> None:
        """A topic has another message."""
        self.size_bytes += _CHANGE_BYTES + len(payload) + len(properties) - len(topic.payload) - len(topic.properties)
        if expires_us:
            self._has_expiries = True
            self.count += 2
            topic.add_change(timestamp_us, offset, EXPIRING + expires_us.to_bytes(8, "little"))
        else:
            topic.refer(timestamp_us, offset)
        topic.timestamp_us = timestamp_us
        topic.offset = offset
        topic.expires_us = expires_us
        topic.qos = qos
        if topic.client_id is not client_id:
            self.size_bytes += len(client_id) - len(topic.client_id)
            topic.client_id = client_id
        topic.properties = properties
        topic.payload = payload

    def clear(self, topic: UnpackedTopic, timestamp_us: int, offset: int) -> None:
        """A topic has no message any more."""
        self.count += 1
        self.size_bytes += _CHANGE_BYTES + len(topic.key)
        topic.add_change(timestamp_us, offset, CLEARED)
        topic.payload = topic.properties = b""

    # -- as entries of the write buffer --------------------------------------------------------------------------

    def has(self, key: bytes) -> bool:
        return key[:1] == RETAINED and key[1:].replace(SEPARATOR, b"/") in self.topics

    def get(self, key: bytes) -> bytes | None:
        return self.topics[key[1:].replace(SEPARATOR, b"/")].message()

    def has_space(self, first_byte: int) -> bool:
        if first_byte == EXPIRY[0]:
            return self._has_expiries
        return self.count > 0 and first_byte in (RETAINED[0], HISTORY[0])

    def fill(self, batch: Batch) -> None:
        for key, value in self._replaced:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        messages, history = batch.space(RETAINED[0]).entries, batch.space(HISTORY[0])
        keys: list[bytes] = []
        remembered: list[int] = []
        size_bytes = 0
        for topic in self.topics.values():
            size_bytes += topic.fill_history(history)
            keys.append(topic.key)
            remembered.append(topic.known())
            message = topic.message()
            if message is not None:
                size_bytes += len(topic.key) + len(message)
                messages[RETAINED + topic.key] = message
                if topic.expires_us:
                    batch.put(EXPIRY + INSTANT.pack(topic.expires_us) + topic.key, b"")
            elif topic.is_stored:
                batch.delete(RETAINED + topic.key)
        batch.size_bytes += size_bytes
        self.sizes.remember(keys, remembered)
        self.forget()

    def forget(self) -> None:
        self.topics.clear()
        self._replaced.clear()
        self._has_expiries = False
        self.count = self.size_bytes = 0
