"""The topics of the state, piece by piece: those that are retained now, and those that were at one or two instants.

Owns: telling from its changes whether a topic had a message at an instant, without reading a message.
"""

from typing import Final, final

from embermq.store.errors import HistoryTrimmed
from embermq.store.state.changes import OFFSET_MAX, Entry, has_message, read_range, until
from embermq.store.state.history import History
from embermq.store.state.retained_keys import RETAINED, RETAINED_END, SEPARATOR
from embermq.store.state.rocks import Rocks
from embermq.store.topic_tree import APPEARED, CHANGED, SAME, VANISHED, Moments, TopicPiece, TopicSource

_NEVER: Final = -1


@final
class RetainedTopics(TopicSource):
    """What is retained now, by its keys alone: with what has expired and is not removed."""

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

    def __init__(self, history: History, moments: Moments, now_us: int, with_changes: bool = False) -> None:
        """`with_changes`: of one instant, with the change of each topic."""
        self._rocks: Final = history.rocks
        self._history: Final = history
        self._with_changes: Final = with_changes
        self._is_compared: Final = moments.compare_us != 0
        self._after_us: Final = moments.as_of_us or now_us
        self._before_us: Final = moments.compare_us
        self._latest: Final = [until(moments.as_of_us or OFFSET_MAX)]
        if self._is_compared:
            self._latest.append(until(moments.compare_us))
        self._check_known()

    def _check_known(self) -> None:
        begins_us = self._history.begins_us()
        if self._after_us < begins_us:
            raise HistoryTrimmed(self._after_us, begins_us)
        if self._is_compared and self._before_us < begins_us:
            raise HistoryTrimmed(self._before_us, begins_us)

    def piece(self, low: bytes, high: bytes, limit: int) -> TopicPiece:
        self._check_known()  # the log may have been trimmed between two pieces
        read = read_range(self._rocks, low, high, limit, self._latest)
        keys: list[bytes] = []
        changes: list[bytes] | None = [] if self._with_changes else None
        signs = bytearray()
        for number, key in enumerate(read.keys):
            after = read.last[0][number]
            before = read.last[1][number] if self._is_compared else None
            sign = self._sign(after, before)
            if sign != _NEVER:
                keys.append(key)
                signs.append(sign)
                if changes is not None and after is not None:
                    changes.append(after[0])
        return TopicPiece(keys, bytes(signs) if self._is_compared else b"", read.covered, read.work, changes)

    def _sign(self, after: Entry | None, before: Entry | None) -> int:
        is_after = after is not None and has_message(after[1], self._after_us)
        if not self._is_compared:
            return SAME if is_after else _NEVER
        is_before = before is not None and has_message(before[1], self._before_us)
        if after is not None and before is not None and is_after and is_before:
            return SAME if after[0] == before[0] else CHANGED
        if is_after:
            return APPEARED
        return VANISHED if is_before else _NEVER


@final
class ComparedTopics(TopicSource):
    """What was retained at either of two instants that two histories know; each source is with changes."""

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
