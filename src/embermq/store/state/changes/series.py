"""Series: changes of one topic that follow each other, under the key of the first of them.

Owns: how the history keeps them, and finding one of them.
Only changes that refer to the log, and whose message does not expire, are in a series; any other change has a key of
its own, and so has one from which a series was cut off. A series is complete when it is written, so the next change of
its topic is after all of them. If the last of them is copied later, its copy has a key of its own too, and counts.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from embermq.store.state.retained_keys import CHANGED_AT
from embermq.store.state.retained_values import REFERENCE, SERIES

SERIES_CHANGES_MAX: Final = 256
"""Of one series: a reader who wants one of them reads all, 4 KiB."""

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
