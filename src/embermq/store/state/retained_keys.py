"""The order of retained messages, and how a topic filter walks through it.

Owns: the key of a topic name, and the walk: a range for `#`, a skip scan for `+`.
Never: where the keys are kept; an engine hands in a cursor over its own.
A key is the topic name with `/` as the lowest byte (U+0000 is never in a topic name). So a topic is followed by all
that is below it and nothing else: a subtree is one range, and the first key past it is known without looking.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, final

SEPARATOR: Final = b"\x00"
AFTER_SUBTREE: Final = b"\x01"  # appended to a key: above everything below that key, below everything else
DOLLAR: Final = b"$"
AFTER_DOLLAR: Final = b"%"  # the byte after '$': what a leading wildcard passes over ends here (4.7.2-1)


def topic_key(topic_name: str) -> bytes:
    """The key of a topic name, or of the levels of a filter."""
    return topic_name.encode().replace(b"/", SEPARATOR)


def key_topic(key: bytes) -> str:
    """The topic name of a key."""
    return key.replace(SEPARATOR, b"/").decode()


class KeyCursor(ABC):
    """A place in the sorted keys of an engine."""

    __slots__ = ()

    @abstractmethod
    def seek(self, key: bytes) -> bytes | None:
        """Go to the first key that is not below `key`; None past the end."""

    @abstractmethod
    def next(self) -> bytes | None:
        """Go one key on; None past the end."""


@final
class BoundedSeeks(KeyCursor):
    """A cursor that stops after so many seeks, as if the keys ended there: `stopped_at` is the last key it saw."""

    __slots__ = ("_cursor", "_last", "_max", "count", "stopped_at")

    def __init__(self, cursor: KeyCursor, seeks_max: int) -> None:
        self._cursor: Final = cursor
        self._max: Final = seeks_max
        self._last: bytes | None = None
        self.count = 0
        self.stopped_at: bytes | None = None

    def seek(self, key: bytes) -> bytes | None:
        if self.count >= self._max:
            self.stopped_at = self._last
            return None
        self.count += 1
        self._last = self._cursor.seek(key)
        return self._last

    def next(self) -> bytes | None:
        self._last = self._cursor.next()
        return self._last


def ranges(topic_filter: str) -> list[tuple[bytes, bytes]] | None:
    """The key ranges (from, up to but without) that are exactly what a filter matches; None if only a walk can tell.

    An empty upper end means no end.
    """
    if topic_filter == "#":
        return [(b"", DOLLAR), (AFTER_DOLLAR, b"")]
    if "+" in topic_filter:
        return None
    if topic_filter.endswith("#"):
        root = topic_key(topic_filter[:-2])
        return [(root, root + AFTER_SUBTREE)]
    key = topic_key(topic_filter)
    return [(key, key + SEPARATOR)]


def walk(topic_filter: str, after_key: bytes, cursor: KeyCursor) -> Iterator[bytes]:
    """Every key that a filter matches, in order, above `after_key` (empty: from the start).

    The cursor stands on the key that was given last, so the engine can read its value there.
    """
    pattern = topic_key(topic_filter).split(SEPARATOR)
    start = _start(pattern)
    # The key right after K is K with the lowest byte appended.
    if after_key and after_key + SEPARATOR > start:
        start = after_key + SEPARATOR
    key = cursor.seek(start)
    while key is not None:
        target = _next_target(pattern, key)
        if target is None:
            yield key
            key = cursor.next()
        elif target:
            key = cursor.seek(target)
        else:
            return


def _start(pattern: list[bytes]) -> bytes:
    literal: list[bytes] = []
    for level in pattern:
        if level in (b"+", b"#"):
            break
        literal.append(level)
    return SEPARATOR.join(literal)


def _next_target(pattern: list[bytes], key: bytes) -> bytes | None:
    """None: the key matches. Else where the next key that can match may be at the earliest; empty: nowhere."""
    levels = key.split(SEPARATOR)
    if pattern[0] in (b"+", b"#") and levels[0].startswith(DOLLAR):
        return AFTER_DOLLAR
    for depth, wanted in enumerate(pattern):
        if wanted == b"#":
            return None
        if depth == len(levels):
            return key + SEPARATOR + (b"" if wanted == b"+" else wanted)
        if wanted == b"+" or wanted == levels[depth]:
            continue
        if levels[depth] < wanted:
            return SEPARATOR.join([*levels[:depth], wanted])
        return _after_wildcard(pattern, levels, depth)
    if len(levels) == len(pattern):
        return None
    return SEPARATOR.join(levels[: len(pattern)]) + AFTER_SUBTREE


def _after_wildcard(pattern: list[bytes], levels: list[bytes], depth: int) -> bytes:
    """Past the subtree chosen by the last `+` above `depth`: below it, everything wanted was passed already."""
    while depth > 0:
        depth -= 1
        if pattern[depth] == b"+":
            return SEPARATOR.join(levels[: depth + 1]) + AFTER_SUBTREE
    return b""
