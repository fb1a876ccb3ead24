"""The changes of retained messages as the state keeps them: for each topic, the instants at which its message changed.

Owns: the value of a change, a series of changes under one key, and finding the last change of a topic at an instant.
Never: a message; `history` knows where those of the changes are.
Changes of one topic that follow each other are a series under the key of the first of them. Only changes that refer to
the log, and whose message does not expire, are in a series; any other change has a key of its own, and so has one from
which a series was cut off. A series is complete when it is written, so the next change of its topic is after all of
them. If the last of them is copied later, its copy has a key of its own too, and counts.

Topics are gone through in two ways. `read_range` reads neighbouring keys, whatever topics they are of: four times as
quick where topics have few changes. `TopicCursor` goes from topic to topic, which a `+` in a filter needs, and steps or
seeks over the changes of one topic however many these are.
"""

from collections.abc import Iterable, Iterator
from typing import Final, final

from librt.strings import read_i64_be

from embermq.store.state.retained_keys import (
    AFTER_TOPIC,
    CHANGED_AT,
    HISTORY,
    HISTORY_END,
    SEPARATOR,
    TERMINATOR,
    KeyCursor,
    escape,
    unescape,
)
from embermq.store.state.retained_values import CLEARED, COPY, EXPIRING, REFERENCE, SERIES, value_expires_us
from embermq.store.state.rocks import Rocks
from embermq.store.state.write_buffer import StateIterator

STEPS_MAX: Final = 8
"""Up to this many changes of a topic are stepped over before a seek: most have few, a step costs a tenth of a seek."""
SEEK_WORK: Final = 100
"""One seek takes about as long as reading this many keys."""
OFFSET_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF

Entry = tuple[bytes, bytes]  # the key of a change or of a series, and its value

_INSTANT_BYTES: Final = CHANGED_AT.size


def last_change(key: bytes, value: bytes, last: bytes) -> Entry:
    """The last change of an entry whose key is not above `last`; the entry's own key is not above it."""
    if value[:1] != SERIES:
        return key, value
    instant = last[-_INSTANT_BYTES:]
    low, high = 0, len(value) // _INSTANT_BYTES  # how many of those after the first are not above it
    while low < high:
        middle = (low + high) // 2
        at = 1 + middle * _INSTANT_BYTES
        if value[at : at + _INSTANT_BYTES] <= instant:
            low = middle + 1
        else:
            high = middle
    if low:
        key = key[:-_INSTANT_BYTES] + value[1 + (low - 1) * _INSTANT_BYTES : 1 + low * _INSTANT_BYTES]
    return key, REFERENCE


def changes_of_entry(key: bytes, value: bytes) -> list[Entry]:
    """Each change of an entry as if it had a key of its own."""
    if value[:1] != SERIES:
        return [(key, value)]
    topic = key[:-_INSTANT_BYTES]
    found = [(key, REFERENCE)]
    for at in range(1, len(value), _INSTANT_BYTES):
        found.append((topic + value[at : at + _INSTANT_BYTES], REFERENCE))
    return found


def entry_of_changes(changes: list[Entry]) -> Entry:
    """The entry of changes that refer to the log: the opposite of `changes_of_entry`."""
    if len(changes) == 1:
        return changes[0]
    return changes[0][0], SERIES + b"".join([key[-_INSTANT_BYTES:] for key, _ in changes[1:]])


def each_change(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Each change of a topic's entries, which are in order; of a change and its copy the copy."""
    last: Entry | None = None
    for key, value in entries:
        changes = changes_of_entry(key, value)
        if last is not None and last[0] != key:
            yield last
        for number in range(len(changes) - 1):
            yield changes[number]
        last = changes[-1]
    if last is not None:
        yield last


# -- one change --------------------------------------------------------------------------------------------------------


@final
class Change:
    """The newest change of one topic up to an instant. `copy` is empty where the log or the state has the message;
    `expires_us` is when that expires.
    """

    def __init__(self, key: bytes, timestamp_us: int, offset: int, copy: bytes, expires_us: int = 0) -> None:
        self.key: Final = key
        self.timestamp_us: Final = timestamp_us
        self.offset: Final = offset
        self.copy: Final = copy
        self.expires_us: Final = expires_us


def made_change(key: bytes, entry: Entry | None, instant_us: int) -> Change | None:
    """The last change of a topic up to an instant, if it has made a message that was retained then."""
    if entry is None or not has_message(entry[1], instant_us):
        return None
    changed, value = entry
    timestamp_us = read_i64_be(changed, len(changed) - _INSTANT_BYTES)
    copy = value[1:] if value[:1] == COPY else b""
    return Change(key, timestamp_us, offset_of(changed), copy, change_expires_us(value))


def has_message(value: bytes, instant_us: int) -> bool:
    """Whether a change has made a message that had not expired at an instant."""
    if value == REFERENCE:
        return True
    return value != CLEARED and not 0 < change_expires_us(value) <= instant_us


def change_expires_us(value: bytes) -> int:
    """When the message expires that a change has made; 0: never."""
    if value[:1] == EXPIRING:
        return int.from_bytes(value[1:], "little")
    return value_expires_us(value[1:]) if value[:1] == COPY else 0


def offset_of(changed: bytes) -> int:
    """Of the record of a change, by its key."""
    return read_i64_be(changed, len(changed) - 8)


def until(instant_us: int, before_offset: int = OFFSET_MAX) -> bytes:
    """What the key of a change has after its topic, at the latest.

    Of the changes at the instant itself only those before an offset count.
    """
    return CHANGED_AT.pack(instant_us, before_offset - 1)


def entries_before(iterator: StateIterator, key: bytes, before_offset: int) -> Iterator[Entry]:
    """The entries of a topic whose first change is before an offset."""
    prefix = HISTORY + escape(key) + TERMINATOR
    iterator.seek(prefix)
    while iterator.valid():
        found: bytes = iterator.key()
        if not found.startswith(prefix) or offset_of(found) >= before_offset:
            return
        yield found, iterator.value()
        iterator.next()


# -- from topic to topic -----------------------------------------------------------------------------------------------


@final
class TopicCursor(KeyCursor):
    """Goes from topic to topic, whatever the number of changes of each."""

    def __init__(self, iterator: StateIterator) -> None:
        self._iterator: Final = iterator
        self._escaped = b""

    def seek(self, key: bytes) -> bytes | None:
        self._iterator.seek(HISTORY + escape(key))
        return self._topic()

    def next(self) -> bytes | None:
        iterator = self._iterator
        prefix = HISTORY + self._escaped + TERMINATOR
        for _ in range(STEPS_MAX):
            if not iterator.valid() or not iterator.key().startswith(prefix):
                return self._topic()
            iterator.next()
        iterator.seek(HISTORY + self._escaped + AFTER_TOPIC)
        return self._topic()

    def last_change(self, latest: bytes) -> Entry | None:
        """The current topic's last change up to an instant, which is as `until` gives it. Asked once for a topic."""
        iterator = self._iterator
        last = HISTORY + self._escaped + TERMINATOR + latest
        found = value = b""
        for _ in range(STEPS_MAX):
            key: bytes = iterator.key() if iterator.valid() else HISTORY_END
            if key > last:  # as every change of a later topic is
                break
            found, value = key, iterator.value()
            iterator.next()
        else:
            iterator.seek_for_prev(last)
            found, value = iterator.key(), iterator.value()
        return last_change(found, value, last) if found else None

    def _topic(self) -> bytes | None:
        if not self._iterator.valid():
            return None
        found: bytes = self._iterator.key()
        self._escaped = found[1 : found.index(TERMINATOR, 1)]
        return unescape(self._escaped)


@final
class RangeRead:
    """What one read of a range has found: all topics up to `covered` and without it.

    `last` has for each instant that was asked for, and for each of the `keys`, the topic's last change up to it.
    """

    def __init__(self, instants: int, covered: bytes, work: int) -> None:
        self.keys: Final[list[bytes]] = []
        self.last: Final[list[list[Entry | None]]] = [[] for _ in range(instants)]
        self.covered = covered
        self.is_end = True  # of the range
        self.work = work  # how many keys were read

    def add(self, key: bytes, last: list[Entry | None]) -> None:
        """A topic."""
        self.keys.append(key)
        for found, entry in zip(self.last, last, strict=True):
            found.append(entry)

    def end(self, covered: bytes, seeks: int) -> None:
        """There may be more from a key on."""
        self.covered = covered
        self.is_end = False
        self.work += seeks * SEEK_WORK


def read_range(rocks: Rocks, low_key: bytes, high_key: bytes, limit: int, latest: list[bytes]) -> RangeRead:
    """The last changes of topics from a key on and before another (empty: no end), as far as one read goes.

    `latest`: the instants, as `until` gives them. One read has up to `limit` keys.
    """
    end = HISTORY + escape(high_key) if high_key else HISTORY_END
    entries = rocks.items_from(HISTORY + escape(low_key), end, limit)
    read = RangeRead(len(latest), high_key, len(entries))
    at = 0
    while at < len(entries):
        first = entries[at][0]
        prefix = first[: first.index(TERMINATOR, 1) + 1]
        key = unescape(prefix[1:-1])
        behind = at + 1
        while behind < len(entries) and entries[behind][0].startswith(prefix):
            behind += 1
        if behind < len(entries) or behind < limit:
            read.add(key, [_last_read(entries, at, behind, prefix + instant) for instant in latest])
        elif at:  # it may have more changes: the next read begins with it
            read.end(key, 0)
        else:
            read.add(key, [_last_sought(rocks, prefix, instant) for instant in latest])
            read.end(key + SEPARATOR, 1)
        at = behind
    return read


def _last_read(entries: list[Entry], at: int, behind: int, last: bytes) -> Entry | None:
    """Of a topic whose entries were all read, the last change whose key is not above `last`."""
    found: Entry | None = None
    while at < behind and entries[at][0] <= last:
        found = entries[at]
        at += 1
    return None if found is None else last_change(found[0], found[1], last)


def _last_sought(rocks: Rocks, prefix: bytes, instant: bytes) -> Entry | None:
    """The same of a topic that has many changes."""
    iterator = rocks.iterator(HISTORY_END)
    iterator.seek_for_prev(prefix + instant)
    key: bytes = iterator.key() if iterator.valid() else b""
    return last_change(key, iterator.value(), prefix + instant) if key.startswith(prefix) else None
