"""The topics of the state, piece by piece: those that are retained now, and those that were at one or two instants.

Owns: telling from its changes whether a topic had a message at an instant, without reading a message.
"""

from typing import Final, final

from embermq.store.errors import HistoryTrimmed
from embermq.store.state.changes.series import last_change
from embermq.store.state.history import History, change_expires_us
from embermq.store.state.retained_keys import (
    CHANGED_AT,
    HISTORY,
    HISTORY_END,
    RETAINED,
    RETAINED_END,
    SEPARATOR,
    TERMINATOR,
    escape,
    unescape,
)
from embermq.store.state.retained_values import CLEARED, REFERENCE
from embermq.store.state.rocks import Rocks
from embermq.store.state.topic_walks import TopicPiece, TopicSource
from embermq.store.topic_tree import APPEARED, CHANGED, SAME, VANISHED, Moments

SEEK_WORK: Final = 100
"""One seek takes about as long as reading this many keys."""

Entry = tuple[bytes, bytes]  # the key of a change, and what it made of the retained message

_NEVER: Final = -1
_LAST: Final = CHANGED_AT.pack(0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF)


@final
class RetainedTopics(TopicSource):
    """What is retained now, by its keys alone: with what has expired and is not removed."""

    __slots__ = ("_rocks",)

    def __init__(self, rocks: Rocks) -> None:
        self._rocks: Final = rocks

    def piece(self, low: bytes, high: bytes, limit: int) -> TopicPiece:
        end = RETAINED + high if high else RETAINED_END
        found = self._rocks.keys_from(RETAINED + low, end, limit)
        covered = found[-1][1:] + SEPARATOR if len(found) == limit else high
        return TopicPiece([key[1:] for key in found], b"", covered, len(found))


@final
class HistoryTopics(TopicSource):
    """What was retained at an instant, or at either of two, by the changes of each topic."""

    __slots__ = ("_after", "_after_us", "_before", "_before_us", "_history", "_is_compared", "_rocks", "_with_changes")

    def __init__(self, history: History, moments: Moments, now_us: int, with_changes: bool = False) -> None:
        """`with_changes`: of one instant, with the change of each topic."""
        self._rocks: Final = history.rocks
        self._history: Final = history
        self._with_changes: Final = with_changes
        self._is_compared: Final = moments.compare_us != 0
        self._after_us: Final = moments.as_of_us or now_us
        self._before_us: Final = moments.compare_us
        # What the key of a change has after its topic, at the latest.
        self._after: Final = _until(moments.as_of_us) if moments.as_of_us else _LAST
        self._before: Final = _until(moments.compare_us)
        self._check_known()

    def _check_known(self) -> None:
        begins_us = self._history.begins_us()
        if self._after_us < begins_us:
            raise HistoryTrimmed(self._after_us, begins_us)
        if self._is_compared and self._before_us < begins_us:
            raise HistoryTrimmed(self._before_us, begins_us)

    def piece(self, low: bytes, high: bytes, limit: int) -> TopicPiece:
        self._check_known()  # the log may have been trimmed between two pieces
        end = HISTORY + escape(high) if high else HISTORY_END
        entries = self._rocks.items_from(HISTORY + escape(low), end, limit)
        is_end = len(entries) < limit
        keys: list[bytes] = []
        changes: list[bytes] | None = [] if self._with_changes else None
        signs = bytearray()
        prefix = b""
        at = 0
        while at < len(entries):
            first = entries[at][0]
            prefix = first[: first.index(TERMINATOR, 1) + 1]
            until, after, before = self._of_topic(entries, at, prefix)
            if until == len(entries) and not is_end:
                if at:  # it may have more changes: the next piece begins with it
                    covered = unescape(prefix[1:-1])
                    return TopicPiece(keys, bytes(signs) if self._is_compared else b"", covered, len(entries), changes)
                after, before = self._by_seeks(prefix)
            sign = self._sign(after, before)
            if sign != _NEVER:
                keys.append(unescape(prefix[1:-1]))
                signs.append(sign)
                if changes is not None and after is not None:
                    changes.append(after[0])
            at = until
        covered = high if is_end else unescape(prefix[1:-1]) + SEPARATOR
        work = len(entries) if is_end else len(entries) + SEEK_WORK
        return TopicPiece(keys, bytes(signs) if self._is_compared else b"", covered, work, changes)

    def _of_topic(self, entries: list[Entry], at: int, prefix: bytes) -> tuple[int, Entry | None, Entry | None]:
        """Where the changes of a topic end, and the last of them at each instant."""
        last_after, last_before = prefix + self._after, prefix + self._before
        after: Entry | None = None
        before: Entry | None = None
        while at < len(entries):
            entry = entries[at]
            key = entry[0]
            if not key.startswith(prefix):
                break
            if key <= last_after:
                after = entry
            if key <= last_before:
                before = entry
            at += 1
        if after is not None:
            after = last_change(after[0], after[1], last_after)
        if before is not None:
            before = last_change(before[0], before[1], last_before)
        return at, after, before

    def _by_seeks(self, prefix: bytes) -> tuple[Entry | None, Entry | None]:
        """The last changes of a topic that has many."""
        before = self._last(prefix, self._before) if self._is_compared else None
        return self._last(prefix, self._after), before

    def _last(self, prefix: bytes, until: bytes) -> Entry | None:
        iterator = self._rocks.iterator(HISTORY_END)
        iterator.seek_for_prev(prefix + until)
        if not iterator.valid():
            return None
        key: bytes = iterator.key()
        if not key.startswith(prefix):
            return None
        value: bytes = iterator.value()
        return last_change(key, value, prefix + until)

    def _sign(self, after: Entry | None, before: Entry | None) -> int:
        is_after = after is not None and _has_message(after[1], self._after_us)
        if not self._is_compared:
            return SAME if is_after else _NEVER
        is_before = before is not None and _has_message(before[1], self._before_us)
        if after is not None and before is not None and is_after and is_before:
            return SAME if after[0] == before[0] else CHANGED
        if is_after:
            return APPEARED
        return VANISHED if is_before else _NEVER


@final
class ComparedTopics(TopicSource):
    """What was retained at either of two instants that two histories know; each source is with changes."""

    __slots__ = ("_after", "_before")

    def __init__(self, after: TopicSource, before: TopicSource) -> None:
        self._after: Final = after
        self._before: Final = before

    def piece(self, low: bytes, high: bytes, limit: int) -> TopicPiece:
        after = self._after.piece(low, high, limit)
        before = self._before.piece(low, high, limit)
        covered = _first_covered(after.covered, before.covered, high)
        is_all = covered == high
        assert after.changes is not None and before.changes is not None
        then = dict(zip(before.keys, before.changes, strict=True))
        now = dict(zip(after.keys, after.changes, strict=True))
        keys = [key for key in sorted(then.keys() | now.keys()) if is_all or key < covered]
        signs = bytearray()
        for key in keys:
            if key not in then:
                signs.append(APPEARED)
            elif key not in now:
                signs.append(VANISHED)
            else:
                signs.append(SAME if now[key] == then[key] else CHANGED)
        return TopicPiece(keys, bytes(signs), covered, after.work + before.work)


def _first_covered(one: bytes, other: bytes, high: bytes) -> bytes:
    """Up to where two pieces go both; `high` is where all of them end."""
    if one == high:
        return other
    return one if other == high else min(one, other)


def _has_message(change: bytes, instant_us: int) -> bool:
    """Whether a change has made a message that had not expired at an instant."""
    if change == REFERENCE:
        return True
    return change != CLEARED and not 0 < change_expires_us(change) <= instant_us


def _until(instant_us: int) -> bytes:
    return CHANGED_AT.pack(instant_us, 0xFFFF_FFFF_FFFF_FFFF)
