"""Walks through the topics that have a retained message: level by level with counts, and by a word in their names.

Owns: which keys make a level, and how much is read before counts are given up.
Never: where the keys are kept; an engine hands in a `TopicSource`.
Keys come sorted, so the topics of a branch are counted by two searches in each piece, not one by one.
"""

from bisect import bisect_left
from typing import Final, final

from embermq.store.state.retained_keys import AFTER_SUBTREE, SEPARATOR, key_topic, topic_key
from embermq.store.topic_tree import (
    APPEARED,
    CHANGED,
    SAME,
    UNKNOWN_COUNT,
    VANISHED,
    WORK_MAX,
    NameSearch,
    TopicPiece,
    TopicSource,
    TreeLevel,
    TreeWalk,
)

PIECE_KEYS: Final = 1_000
"""How many keys are read at once: about half a millisecond."""
FEW_KEYS: Final = 16
"""How many are read at once where the next level is looked for and not counted."""


@final
class _Tally:
    """What was counted of one branch."""

    def __init__(self, key: bytes, budget: int) -> None:
        self.key: Final = key
        self.after: Final = key + AFTER_SUBTREE
        self.budget: Final = budget
        self.counts: Final = [0, 0, 0, 0]  # by sign
        self.total = 0
        self.work = 0
        self.has_own = False
        self.own_sign = SAME

    def add(self, keys: list[bytes], signs: bytes, at: int, until: int) -> None:
        """Count some keys of this branch."""
        if at == until:
            return
        if keys[at] == self.key:
            self.has_own = True
            if signs:
                self.own_sign = signs[at]
        self.total += until - at
        if signs:
            for sign in (APPEARED, CHANGED, VANISHED):
                self.counts[sign] += signs.count(sign, at, until)

    def add_work(self, keys: int) -> None:
        """So many keys were read for it."""
        self.work += keys

    def level(self, root_bytes: int, is_counted: bool) -> TreeLevel:
        counts = self.counts
        return TreeLevel(
            self.key[root_bytes:].decode(),
            key_topic(self.key),
            self.has_own,
            self.total > int(self.has_own) or not is_counted,
            self.own_sign,
            self.total - counts[VANISHED] if is_counted else UNKNOWN_COUNT,
            counts[APPEARED],
            counts[CHANGED],
            counts[VANISHED],
        )


@final
class LevelWalk(TreeWalk):
    """The levels below a topic; None: the first levels of all topics."""

    def __init__(self, source: TopicSource, below: str | None, position: str, work_max: int = WORK_MAX) -> None:
        key = b"" if below is None else topic_key(below)
        self._source: Final = source
        self._root: Final = b"" if below is None else key + SEPARATOR
        self._end: Final = b"" if below is None else key + AFTER_SUBTREE
        self._covered = self._root + topic_key(position)
        self._is_begun = False
        self._piece = TopicPiece([], b"", self._covered, 0)
        self._at = 0
        self._branch: _Tally | None = None
        self._work = 0
        self._work_max: Final = work_max

    def is_done(self) -> bool:
        return self._is_begun and self._at == len(self._piece.keys) and self._covered == self._end

    def is_exhausted(self) -> bool:
        return self._work >= 2 * self._work_max

    def position(self) -> str:
        key = self._covered if self._branch is None else self._branch.key
        return key_topic(key[len(self._root) :])

    def step(self) -> list[TreeLevel]:
        found: list[TreeLevel] = []
        if self._is_begun and self._covered == self._end and self._at == len(self._piece.keys):
            return found
        self._load()
        keys, signs = self._piece.keys, self._piece.signs
        while True:
            branch = self._branch
            if branch is None:
                if self._at == len(keys):
                    return found
                key = keys[self._at]
                stop = key.find(SEPARATOR, len(self._root))
                branch = _Tally(key if stop < 0 else key[:stop], max(0, self._work_max - self._work) // 2)
                self._branch = branch
            until = bisect_left(keys, branch.after, self._at)
            branch.add(keys, signs, self._at, until)
            self._at = until
            if until == len(keys) and not self._is_covered(branch.after):
                if branch.work < branch.budget:
                    return found  # the next piece has more of it
                self._covered = branch.after
                found.append(branch.level(len(self._root), False))
            else:
                found.append(branch.level(len(self._root), True))
            self._branch = None

    def _load(self) -> None:
        is_counting = self._work < self._work_max
        piece = self._source.piece(self._covered, self._end, PIECE_KEYS if is_counting else FEW_KEYS)
        self._is_begun = True
        self._piece = piece
        self._at = 0
        self._covered = piece.covered
        self._work += piece.work
        if self._branch is not None:
            self._branch.add_work(piece.work)

    def _is_covered(self, key: bytes) -> bool:
        """Whether every topic before a key of this walk was seen."""
        covered = self._covered
        return covered == self._end or covered >= key


@final
class WordSearch(NameSearch):
    """The topics whose names have a word in them; upper and lower case are the same."""

    def __init__(self, source: TopicSource, word: str, position: str) -> None:
        self._source: Final = source
        self._word: Final = word.lower()
        self._word_bytes: Final = topic_key(word.lower())
        self._is_ascii: Final = word.isascii()
        self._covered = topic_key(position)
        self._is_begun = False

    def is_done(self) -> bool:
        return self._is_begun and not self._covered

    def position(self) -> str:
        return key_topic(self._covered)

    def step(self) -> list[str]:
        if self.is_done():
            return []
        self._is_begun = True
        piece = self._source.piece(self._covered, b"", PIECE_KEYS)
        self._covered = piece.covered
        if self._is_ascii:
            word = self._word_bytes
            return [key_topic(key) for key in piece.keys if word in key.lower()]
        return [name for name in [key_topic(key) for key in piece.keys] if self._word in name.lower()]
