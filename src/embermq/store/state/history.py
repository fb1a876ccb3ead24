"""The history of retained messages: for each topic the instants at which its message changed.

Owns: the key space (topic, time, offset), the answer to "what was retained then", and forgetting with the log.
A change is a reference to its record in the log. Before the record is trimmed, the message that was current at the
log's new beginning is copied here, unless it is current still: then the retained message itself is the copy.
"""

import re
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, final

from rocksdict import RdictIter, WriteBatch

from embermq.store.log.records import QOS_MASK, RETAIN_FLAG, Group, Kind
from embermq.store.state.retained_keys import SEPARATOR, KeyCursor, walk
from embermq.store.state.retained_value import RETAINED, pack_retained, value_offset
from embermq.store.state.rocks import Rocks

HISTORY: Final = b"H"
HISTORY_END: Final = b"I"
CLEARED: Final = b"\x00"
REFERENCE: Final = b"\x01"
COPY: Final = b"\x02"  # then the message, packed

CHUNK_TOPICS: Final = 4_000
CHUNK_BYTES: Final = 4 * 1024 * 1024
"""How much of a log that is to be trimmed is looked at before others have their turn."""
STEPS_MAX: Final = 8
"""So many changes of a topic are stepped over before a search: most have few, and a step costs a tenth of a search."""

_TERMINATOR: Final = b"\x00"
_AFTER_TOPIC: Final = b"\x01"
_WHEN: Final = Struct(">QQ")  # timestamp (us), offset
_OFFSET_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
_ESCAPED: Final = re.compile(rb"\x02([\x01\x02])|\x01")


def _escape(key: bytes) -> bytes:
    """A topic key with room below its lowest byte for a terminator; the order stays the same."""
    if b"\x01" in key or b"\x02" in key:
        key = key.replace(b"\x02", b"\x02\x02").replace(b"\x01", b"\x02\x01")
    return key.replace(SEPARATOR, b"\x01")


def _unescape(escaped: bytes) -> bytes:
    if b"\x02" not in escaped:
        return escaped.replace(b"\x01", SEPARATOR)
    return _ESCAPED.sub(lambda found: found[1] or SEPARATOR, escaped)


def history_key(key: bytes, timestamp_us: int, offset: int) -> bytes:
    """Where a change of a topic key at an instant is kept."""
    if b"\x01" in key or b"\x02" in key:
        return HISTORY + _escape(key) + _TERMINATOR + _WHEN.pack(timestamp_us, offset)
    return HISTORY + key.replace(SEPARATOR, b"\x01") + _TERMINATOR + _WHEN.pack(timestamp_us, offset)


@final
class Change:
    """The newest change of one topic up to an instant. `copy` is empty where the log or the state has the message."""

    __slots__ = ("copy", "key", "offset", "timestamp_us")

    def __init__(self, key: bytes, timestamp_us: int, offset: int, copy: bytes) -> None:
        self.key: Final = key
        self.timestamp_us: Final = timestamp_us
        self.offset: Final = offset
        self.copy: Final = copy


@final
class _TopicCursor(KeyCursor):
    """Goes from topic to topic, whatever the number of changes of each."""

    __slots__ = ("_escaped", "_iterator")

    def __init__(self, iterator: RdictIter) -> None:
        self._iterator: Final = iterator
        self._escaped = b""

    def seek(self, key: bytes) -> bytes | None:
        self._iterator.seek(HISTORY + _escape(key))
        return self._topic()

    def next(self) -> bytes | None:
        iterator = self._iterator
        prefix = HISTORY + self._escaped + _TERMINATOR
        for _ in range(STEPS_MAX):
            if not iterator.valid() or not iterator.key().startswith(prefix):
                return self._topic()
            iterator.next()
        iterator.seek(HISTORY + self._escaped + _AFTER_TOPIC)
        return self._topic()

    def change_at(self, instant_us: int) -> tuple[int, int, bytes] | None:
        """Timestamp, offset and value of the current topic's last change up to an instant. Asked once for a topic."""
        iterator = self._iterator
        prefix = HISTORY + self._escaped + _TERMINATOR
        last = prefix + _WHEN.pack(instant_us, _OFFSET_MAX)
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
        if not found:
            return None
        timestamp_us, offset = _WHEN.unpack_from(found, len(prefix))
        return timestamp_us, offset, value

    def _topic(self) -> bytes | None:
        if not self._iterator.valid():
            return None
        found: bytes = self._iterator.key()
        self._escaped = found[1 : found.index(_TERMINATOR, 1)]
        return _unescape(self._escaped)


def changes_as_of(rocks: Rocks, topic_filter: str, after_key: bytes, limit: int, instant_us: int) -> list[Change]:
    """For up to `limit` topics that had a retained message at an instant, the change that made it so."""
    found: list[Change] = []
    for change in past_changes(rocks, topic_filter, after_key, instant_us):
        if change is not None:
            found.append(change)
            if len(found) == limit:
                break
    return found


def past_changes(rocks: Rocks, topic_filter: str, after_key: bytes, instant_us: int) -> Iterator[Change | None]:
    """For each topic with a history, the change that was its last at an instant; None if nothing was retained then."""
    cursor = _TopicCursor(rocks.iterator(HISTORY_END))
    for key in walk(topic_filter, after_key, cursor):
        change = cursor.change_at(instant_us)
        if change is None or change[2] == CLEARED:
            yield None
        else:
            timestamp_us, offset, value = change
            yield Change(key, timestamp_us, offset, value[1:])


def forget(rocks: Rocks, groups: Iterable[Group], before_offset: int) -> Iterator[None]:
    """Drop the changes that only the log before an offset could tell, copying what outlives it.

    `groups` is that part of the log. Done in pieces: whoever drives this may apply other groups between two of them.
    """
    seen: dict[bytes, tuple[int, bytes]] = {}
    seen_bytes = 0
    for group in groups:
        for row in range(min(len(group), before_offset - group.first_offset)):
            kind = group.kinds[row]
            removed = kind == Kind.RETAINED_REMOVED
            if not removed and not (kind == Kind.PUBLISH and group.flags[row] & RETAIN_FLAG):
                continue
            key = group.topics[row].replace(b"/", SEPARATOR)
            value = b"" if removed else _value(group, row)
            seen[key] = group.first_offset + row, value
            seen_bytes += len(key) + len(value)
            if len(seen) >= CHUNK_TOPICS or seen_bytes >= CHUNK_BYTES:
                _forget_topics(rocks, seen, before_offset)
                seen.clear()
                seen_bytes = 0
                yield
        yield
        if group.first_offset + len(group) >= before_offset:
            break
    _forget_topics(rocks, seen, before_offset)


def _value(group: Group, row: int) -> bytes:
    payload = group.payloads[row]
    if not payload:
        return b""
    return pack_retained(
        group.first_offset + row,
        group.timestamps_us[row],
        0,
        group.flags[row] & QOS_MASK,
        group.client_ids[row],
        group.properties[row],
        payload,
    )


def _forget_topics(rocks: Rocks, seen: dict[bytes, tuple[int, bytes]], before_offset: int) -> None:
    if not seen:
        return
    iterator = rocks.iterator(HISTORY_END)
    current = rocks.get_many([RETAINED + key for key in seen])

    def fill(batch: WriteBatch) -> None:
        for (key, (offset, value)), retained in zip(seen.items(), current, strict=True):
            newest: bytes | None = None
            for change in _changes_before(iterator, key, before_offset):
                if newest is not None:
                    batch.delete(newest)
                newest = change
            if newest is None or _WHEN.unpack_from(newest, len(newest) - _WHEN.size)[1] != offset:
                continue  # a later piece meets the newest one
            if not value:
                batch.delete(newest)
            elif retained is None or value_offset(retained) != offset:
                batch.put(newest, COPY + value)

    rocks.write(fill)


def _changes_before(iterator: RdictIter, key: bytes, before_offset: int) -> Iterator[bytes]:
    prefix = HISTORY + _escape(key) + _TERMINATOR
    iterator.seek(prefix)
    while iterator.valid():
        found: bytes = iterator.key()
        if not found.startswith(prefix) or _WHEN.unpack_from(found, len(prefix))[1] >= before_offset:
            return
        yield found
        iterator.next()
