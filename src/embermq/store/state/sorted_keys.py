"""Sorted keys in memory, for the engine that keeps nothing else.

Owns: when they are sorted, and a place among them.
"""

from bisect import bisect_left, insort
from typing import Final, final

from embermq.store.state.retained_keys import SEPARATOR, KeyCursor
from embermq.store.topic_tree import TopicPiece, TopicSource

_INSORT_MAX: Final = 32  # up to this many new keys are inserted one by one; more are sorted in at once


@final
class SortedKeys:
    """The keys of the retained messages, sorted when they are read."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._added: set[bytes] = set()
        self._gone: set[bytes] = set()

    def add(self, key: bytes) -> None:
        if key in self._gone:
            self._gone.remove(key)
        else:
            self._added.add(key)

    def remove(self, key: bytes) -> None:
        if key in self._added:
            self._added.remove(key)
        else:
            self._gone.add(key)

    def sorted(self) -> list[bytes]:
        if self._gone:
            self._keys = [key for key in self._keys if key not in self._gone]
            self._gone.clear()
        if len(self._added) > _INSORT_MAX:
            self._keys.extend(self._added)
            self._keys.sort()
        else:
            for key in self._added:
                insort(self._keys, key)
        self._added.clear()
        return self._keys


@final
class ListCursor(KeyCursor):
    """A place in a sorted list."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys: Final = keys
        self._at = 0

    def seek(self, key: bytes) -> bytes | None:
        self._at = bisect_left(self._keys, key)
        return self._keys[self._at] if self._at < len(self._keys) else None

    def next(self) -> bytes | None:
        self._at += 1
        return self._keys[self._at] if self._at < len(self._keys) else None


@final
class ListedTopics(TopicSource):
    """The keys as topics with a message."""

    def __init__(self, keys: SortedKeys) -> None:
        self._keys: Final = keys

    def piece(self, low: bytes, high: bytes, limit: int) -> TopicPiece:
        keys = self._keys.sorted()
        start = bisect_left(keys, low)
        found = keys[start : start + limit]
        if high:
            del found[bisect_left(found, high) :]
        covered = found[-1] + SEPARATOR if len(found) == limit else high
        return TopicPiece(found, b"", covered, len(found))
