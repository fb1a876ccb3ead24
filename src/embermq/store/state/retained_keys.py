"""The keys of retained messages and of their changes, and how a topic filter walks through them.

Owns: the key of a topic name and of a change, the walk (a range for `#`, a skip scan for `+`), and its bounds.
Never: where the keys are kept; an engine hands in a cursor over its own.
A key is the topic name with `/` as the lowest byte (U+0000 is never in a topic name). So a topic is followed by all
that is below it and nothing else: a subtree is one range, and the first key after it is known without a seek. The key
of a change is that of its topic, then a byte that is lower still, then the instant: so each topic's changes lie
together.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from struct import Struct
from typing import Final, final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import mypyc_attr

from embermq.store.interface import Retained, RetainedPiece

SEPARATOR: Final = b"\x00"
AFTER_SUBTREE: Final = b"\x01"  # appended to a key: above everything below that key, below everything else
DOLLAR: Final = b"$"
AFTER_DOLLAR: Final = b"%"  # the byte after '$': what a leading wildcard passes over ends here (MQTT-4.7.2-1)

RETAINED: Final = b"R"
RETAINED_END: Final = b"S"
EXPIRY: Final = b"E"  # then when the message expires, as `INSTANT`
INSTANT: Final = Struct(">Q")
HISTORY: Final = b"H"
HISTORY_END: Final = b"I"
TERMINATOR: Final = b"\x00"  # of the topic in the key of a change
AFTER_TOPIC: Final = b"\x01"  # in its place: above every change of the topic
CHANGED_AT: Final = Struct(">QQ")  # timestamp (us), offset; as `history_key_of` writes them

_BETWEEN: Final = b"\xff"  # never in a topic name, which is UTF-8
_ESCAPED: Final = re.compile(rb"\x02([\x01\x02])|\x01")


def topic_key(topic_name: str) -> bytes:
    """The key of a topic name, or of the levels of a filter."""
    return topic_name.encode().replace(b"/", SEPARATOR)


def key_topic(key: bytes) -> str:
    """The topic name of a key."""
    return key.replace(SEPARATOR, b"/").decode()


def escape(key: bytes) -> bytes:
    """A topic key without its lowest byte, which becomes free for a terminator; the order stays the same."""
    if 1 in key or 2 in key:  # the bytes as numbers: asked for as bytes, Python makes an error first
        key = key.replace(b"\x02", b"\x02\x02").replace(b"\x01", b"\x02\x01")
    return key.replace(SEPARATOR, b"\x01")


def unescape(escaped: bytes) -> bytes:
    """The topic key that `escape` was given."""
    if b"\x02" not in escaped:
        return escaped.replace(b"\x01", SEPARATOR)
    return _ESCAPED.sub(lambda found: found[1] or SEPARATOR, escaped)


def topic_keys(topics: list[bytes]) -> list[bytes]:
    """The keys of some topic names. All of them in few calls: each alone takes longer."""
    return _BETWEEN.join(topics).replace(b"/", SEPARATOR).split(_BETWEEN) if topics else []


def escape_all(keys: list[bytes]) -> list[bytes]:
    """As `escape`, of some keys in few calls."""
    return escape(_BETWEEN.join(keys)).split(_BETWEEN) if keys else []


def history_key(key: bytes, timestamp_us: int, offset: int) -> bytes:
    """Where the change of a topic key at an instant is kept."""
    return history_key_of(escape(key), timestamp_us, offset)


def history_key_of(escaped: bytes, timestamp_us: int, offset: int) -> bytes:
    """The same for a topic key that is escaped already."""
    writer = BytesWriter()
    writer.write(HISTORY)
    writer.write(escaped)
    writer.write(TERMINATOR)
    write_i64_be(writer, timestamp_us)
    write_i64_be(writer, offset)
    return writer.getvalue()


@mypyc_attr(allow_interpreted_subclasses=True)
class KeyCursor(ABC):
    """A place in the sorted keys of an engine."""

    @abstractmethod
    def seek(self, key: bytes) -> bytes | None:
        """Go to the first key that is not below `key`; None after the last."""

    @abstractmethod
    def next(self) -> bytes | None:
        """Go one key on; None after the last."""


@final
class BoundedSeeks(KeyCursor):
    """A cursor that stops after `seeks_max` seeks, as if the keys ended there: `stopped_at` is the last key it saw."""

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
    """The key after the subtree chosen by the last `+` above `depth`: in that subtree nothing more can match."""
    while depth > 0:
        depth -= 1
        if pattern[depth] == b"+":
            return SEPARATOR.join(levels[: depth + 1]) + AFTER_SUBTREE
    return b""


def piece_of(
    matching: Iterator[Retained],
    seeks: BoundedSeeks | None,
    after_topic_name: str,
    limit: int,
    bytes_max: int,
    now_us: int,
) -> RetainedPiece:
    """The first of `matching`, within the bounds; `seeks` is the cursor they are found with, if that may stop early."""
    found: list[Retained] = []
    size_bytes = expired = 0
    for retained in matching:
        if retained.has_expired(now_us):
            expired += 1  # takes as long as one that is given
        else:
            found.append(retained)
            size_bytes += len(retained.topic) + len(retained.payload)
        if len(found) + expired >= limit or size_bytes >= bytes_max:
            return RetainedPiece(found, retained.topic_name, False, size_bytes, seeks.count if seeks else 0)
    if seeks is None:
        return RetainedPiece(found, after_topic_name, True, size_bytes, 0)
    if seeks.stopped_at is None:
        return RetainedPiece(found, after_topic_name, True, size_bytes, seeks.count)
    return RetainedPiece(found, key_topic(seeks.stopped_at), False, size_bytes, seeks.count)
