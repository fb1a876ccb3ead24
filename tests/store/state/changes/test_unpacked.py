"""Unpacked changes: the entries that are made of them, and what they answer before that."""

from embermq.store.budgets import NOT_RETAINED
from embermq.store.state.changes.series import SERIES_CHANGES_MAX, changes_of_entry
from embermq.store.state.changes.unpacked import UnpackedChanges, UnpackedTopic
from embermq.store.state.retained_keys import EXPIRY, HISTORY, INSTANT, escape, history_key
from embermq.store.state.retained_sizes import ABSENT, UNKNOWN, Sizes, known
from embermq.store.state.retained_values import CLEARED, EXPIRING, REFERENCE, packed_message
from embermq.store.state.write_buffer import Batch

KEY = b"a\x00b"
STORED = b"R" + KEY


class Sample:
    """Unpacked changes of one topic."""

    def __init__(self, is_stored: bool = True) -> None:
        self.sizes = Sizes()
        self.unpacked = UnpackedChanges(self.sizes)
        self.topic = UnpackedTopic(KEY, escape(KEY), NOT_RETAINED, is_stored)
        self.unpacked.begin_topic(b"a/b", self.topic)
        self.offset = 0

    def retain(self, payload: bytes, expires_us: int = 0) -> None:
        self.offset += 1
        now_us = 1_000 + self.offset
        self.unpacked.retain(self.topic, now_us, self.offset, expires_us, 1, b"client", b"", payload)
        self.topic.size_bytes = len(KEY) + len(payload)

    def clear(self) -> None:
        self.offset += 1
        self.unpacked.clear(self.topic, 1_000 + self.offset, self.offset)
        self.topic.size_bytes = NOT_RETAINED

    def key(self, offset: int) -> bytes:
        return history_key(KEY, 1_000 + offset, offset)

    def entries(self) -> dict[bytes, bytes | None]:
        """The entries they become, each change with a key of its own."""
        batch = Batch()
        self.unpacked.fill(batch)
        found: dict[bytes, bytes | None] = {}
        for first_byte, space in batch.spaces.items():
            found.update(dict.fromkeys(space.new, REFERENCE))
            for key, value in space.entries.items():
                if first_byte == HISTORY[0] and value is not None:
                    found.update(changes_of_entry(key, value))
                else:
                    found[key] = value
        return found


def test_the_last_message_is_packed_and_every_change_is_kept() -> None:
    sample = Sample()
    for payload in (b"1", b"2", b"3"):
        sample.retain(payload)
    message = packed_message(3, 1_003, 0, 1, b"client", b"", b"3")
    assert sample.unpacked.has(STORED)
    assert sample.unpacked.get(STORED) == message
    changes = {sample.key(offset): REFERENCE for offset in (1, 2, 3)}
    assert sample.entries() == {STORED: message, **changes}
    assert sample.sizes.look_up([KEY]) == [known(3, len(KEY) + 1)]
    assert not sample.unpacked.has(STORED)
    assert sample.unpacked.count == sample.unpacked.size_bytes == 0


def test_a_clear_and_an_expiry_have_keys_of_their_own() -> None:
    sample = Sample()
    for payload in (b"1", b"2"):
        sample.retain(payload)
    sample.clear()
    sample.retain(b"4", expires_us=9_000)
    sample.retain(b"5")
    sample.retain(b"6", expires_us=9_500)
    found = sample.entries()
    assert found.pop(STORED) == packed_message(6, 1_006, 9_500, 1, b"client", b"", b"6")
    assert found == {
        sample.key(1): REFERENCE,
        sample.key(2): REFERENCE,
        sample.key(3): CLEARED,
        sample.key(4): EXPIRING + (9_000).to_bytes(8, "little"),
        sample.key(5): REFERENCE,
        sample.key(6): EXPIRING + (9_500).to_bytes(8, "little"),
        EXPIRY + INSTANT.pack(9_500) + KEY: b"",
    }
    assert sample.sizes.look_up([KEY]) == [UNKNOWN]


def test_a_cleared_message_is_deleted_unless_the_database_has_none() -> None:
    for is_stored in (True, False):
        sample = Sample(is_stored)
        sample.retain(b"1")
        sample.clear()
        assert sample.unpacked.has(STORED)
        assert sample.unpacked.get(STORED) is None
        assert (STORED in sample.entries()) == is_stored
        assert sample.sizes.look_up([KEY]) == [ABSENT]


def test_what_the_message_before_needs_comes_first() -> None:
    sample = Sample()
    expiry = EXPIRY + INSTANT.pack(9_000) + KEY
    sample.unpacked.replace(expiry, None)
    sample.retain(b"1", expires_us=9_000)
    assert sample.entries()[expiry] == b""


def test_a_series_has_a_bound() -> None:
    sample = Sample()
    changes = 2 * SERIES_CHANGES_MAX + 1
    for _ in range(changes):
        sample.retain(b"x")
    batch = Batch()
    sample.unpacked.fill(batch)
    history = batch.spaces[HISTORY[0]]
    assert len(history) == 3
    lengths = [len(changes_of_entry(key, value)) for key, value in history.entries.items() if value is not None]
    assert lengths == [SERIES_CHANGES_MAX, SERIES_CHANGES_MAX, 1]


def test_the_bytes_that_are_held_are_counted() -> None:
    sample = Sample()
    sample.retain(bytes(100_000))
    assert 100_000 < sample.unpacked.size_bytes < 101_000
    sample.retain(b"x")
    assert sample.unpacked.size_bytes < 1_000
    sample.unpacked.forget()
    assert sample.unpacked.count == sample.unpacked.size_bytes == 0
