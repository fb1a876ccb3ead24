"""Changed topics: the entries that are made of them, and what the buffer answers before that."""

from embermq.store.budgets import NOT_RETAINED
from embermq.store.rows import RETAIN_FLAG, Kind, LogRow
from embermq.store.state.changed_topics import ChangedTopic
from embermq.store.state.changes import changes_of_entry
from embermq.store.state.retained_keys import EXPIRY, HISTORY, INSTANT, history_key
from embermq.store.state.retained_sizes import ABSENT, UNKNOWN, Sizes, known
from embermq.store.state.retained_values import CLEARED, EXPIRING, REFERENCE, SERIES_CHANGES_MAX, packed_row
from embermq.store.state.write_buffer import Batch, WriteBuffer

KEY = b"a\x00b"
STORED = b"R" + KEY
BYTES_MAX = 100_000


def row_of(offset: int, payload: bytes) -> LogRow:
    return LogRow(offset, 1_000 + offset, Kind.PUBLISH, 1 | RETAIN_FLAG, b"a/b", payload, b"client")


class Sample:
    """A buffer with one changed topic."""

    def __init__(self, is_stored: bool = True) -> None:
        self.sizes = Sizes()
        self.buffer = WriteBuffer(self.sizes, 100, BYTES_MAX)
        self.topic = ChangedTopic(KEY, NOT_RETAINED, is_stored)
        self.buffer.add_topic(b"a/b", self.topic)
        self.offset = 0

    def retain(self, payload: bytes, expires_us: int = 0) -> None:
        self.offset += 1
        added = self.topic.retain(row_of(self.offset, payload), expires_us, len(KEY) + len(payload))
        self.buffer.grow(added, expires_us != 0)

    def clear(self) -> None:
        self.offset += 1
        self.buffer.grow(self.topic.clear(row_of(self.offset, b""), NOT_RETAINED), False)

    def key(self, offset: int) -> bytes:
        return history_key(KEY, 1_000 + offset, offset)

    def entries(self) -> dict[bytes, bytes | None]:
        """The entries of the buffer, each change with a key of its own."""
        found: dict[bytes, bytes | None] = {}
        for key, value in self.buffer.seal().values.items():
            if key[:1] == HISTORY and value is not None:
                found.update(changes_of_entry(key, value))
            else:
                found[key] = value
        return found


def test_the_last_message_is_packed_and_every_change_is_kept() -> None:
    sample = Sample()
    for payload in (b"1", b"2", b"3"):
        sample.retain(payload)
    message = packed_row(row_of(3, b"3"))
    assert sample.buffer.has(STORED)
    assert sample.buffer.get(STORED) == message
    changes = {sample.key(offset): REFERENCE for offset in (1, 2, 3)}
    assert sample.entries() == {STORED: message, **changes}
    assert sample.sizes.look_up([KEY]) == [known(3, len(KEY) + 1)]
    assert sample.buffer.has(STORED)
    assert sample.buffer.get(STORED) == message


def test_a_clear_and_an_expiry_have_keys_of_their_own() -> None:
    sample = Sample()
    for payload in (b"1", b"2"):
        sample.retain(payload)
    sample.clear()
    sample.retain(b"4", expires_us=9_000)
    sample.retain(b"5")
    sample.retain(b"6", expires_us=9_500)
    found = sample.entries()
    assert found.pop(STORED) == packed_row(row_of(6, b"6"), 9_500)
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
        assert sample.buffer.has(STORED)
        assert sample.buffer.get(STORED) is None
        assert (STORED in sample.entries()) == is_stored
        assert sample.sizes.look_up([KEY]) == [ABSENT]


def test_what_the_message_before_needs_comes_first() -> None:
    sample = Sample()
    expiry = EXPIRY + INSTANT.pack(9_000) + KEY
    replaced = Batch()
    replaced.delete(expiry)
    sample.buffer.add(replaced)
    sample.retain(b"1", expires_us=9_000)
    assert sample.entries()[expiry] == b""


def test_a_series_has_a_bound() -> None:
    sample = Sample()
    changes = 2 * SERIES_CHANGES_MAX + 1
    for _ in range(changes):
        sample.retain(b"x")
    values = sample.buffer.seal().values
    history = [(key, value) for key, value in values.items() if key[:1] == HISTORY and value is not None]
    lengths = [len(changes_of_entry(key, value)) for key, value in history]
    assert lengths == [SERIES_CHANGES_MAX, SERIES_CHANGES_MAX, 1]


def test_the_bytes_of_the_newest_message_alone_count() -> None:
    sample = Sample()
    sample.retain(bytes(BYTES_MAX))
    assert sample.buffer.is_full()
    for _ in range(100):
        sample.retain(b"x")
    assert not sample.buffer.is_full()
    sample.retain(bytes(BYTES_MAX - 5_000))
    assert not sample.buffer.is_full()


def test_many_changes_make_a_buffer_full() -> None:
    sample = Sample()
    for _ in range(BYTES_MAX // 16):
        sample.retain(b"x")
    assert sample.buffer.is_full()


def test_topics_and_expiries_count_as_the_entries_that_they_become() -> None:
    buffer = WriteBuffer(Sizes(), 6)
    for number in range(3):
        buffer.add_topic(b"t%d" % number, ChangedTopic(b"t%d" % number, NOT_RETAINED, True))
        assert not buffer.is_full()
    buffer.grow(1, has_expiry=True)
    assert buffer.is_full()
