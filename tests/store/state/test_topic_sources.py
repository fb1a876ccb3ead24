"""The topics at one or two instants agree with what the history and the retained set say."""

from pathlib import Path
from random import Random

import pytest

from embermq.store.errors import HistoryTrimmed
from embermq.store.rows import Group
from embermq.store.state.retained_keys import key_topic
from embermq.store.state.state import State
from embermq.store.state.topic_sources import ComparedTopics, HistoryTopics
from embermq.store.topic_tree import APPEARED, CHANGED, SAME, VANISHED, Moments, TopicSource
from support.state_samples import retained

LAST_US = 1_020
NAMES = ("a", "a/b", "a\x01", "a\x02/c", "a/b/c", "/", "b", "c/d", "hot")
Kept = dict[str, int]


def changed_state(directory: Path, random: Random) -> tuple[State, dict[int, Kept]]:
    """A state with changes at random instants, and for each instant the topics with the offset of their message."""
    state = State(directory)
    kept: Kept = {}
    at: dict[int, Kept] = {999: {}}
    offset = 1
    for instant_us in range(1_000, LAST_US):
        group = Group(offset)
        for _ in range(random.randrange(1, 5)):
            name = random.choice(NAMES)
            payload = b"" if random.random() < 0.3 else b"x"
            for _ in range(random.choice((1, 1, 30)) if name == "hot" else 1):
                retained(group, name.encode(), payload, instant_us)
            kept.pop(name, None)
            if payload:
                kept[name] = offset + len(group) - 1
        state.apply(group)
        offset += len(group)
        at[instant_us] = dict(kept)
    return state, at


def signs_of(source: TopicSource, limit: int) -> dict[str, int]:
    """All topics, in pieces of about so many keys, from the first to the last."""
    found: dict[str, int] = {}
    low = b""
    while True:
        piece = source.piece(low, b"", limit)
        signs = piece.signs or bytes(len(piece.keys))
        assert len(signs) == len(piece.keys)
        found |= {key_topic(key): sign for key, sign in zip(piece.keys, signs, strict=True)}
        if not piece.covered:
            return found
        assert piece.covered > low
        low = piece.covered


def sign(name: str, after: Kept, before: Kept) -> int:
    if name not in before:
        return APPEARED
    if name not in after:
        return VANISHED
    return SAME if after[name] == before[name] else CHANGED


@pytest.mark.parametrize("seed", range(3))
def test_instants_agree_with_what_was_published(tmp_path: Path, seed: int) -> None:
    state, at = changed_state(tmp_path, Random(seed))
    for limit in (1, 3, 1_000):
        assert signs_of(state.topics(Moments(), LAST_US), limit) == dict.fromkeys(at[LAST_US - 1], SAME)
        for instant_us, kept in at.items():
            assert signs_of(state.topics(Moments(instant_us), LAST_US), limit) == dict.fromkeys(kept, SAME)
        for before_us, after_us in ((999, 1_010), (1_005, 1_015), (1_015, 1_005), (1_010, 0)):
            after, before = at[after_us or LAST_US - 1], at[before_us]
            found = signs_of(state.topics(Moments(after_us, before_us), LAST_US), limit)
            sides = [HistoryTopics(state.history, Moments(each), LAST_US, True) for each in (after_us, before_us)]
            assert signs_of(ComparedTopics(*sides), limit) == found, "as two histories have it"
            assert found == {name: sign(name, after, before) for name in after.keys() | before.keys()}
    state.close()


def test_a_piece_ends_where_it_is_told_to(tmp_path: Path) -> None:
    state, at = changed_state(tmp_path, Random(7))
    for moments in (Moments(), Moments(1_019)):
        piece = state.topics(moments, LAST_US).piece(b"a", b"a\x01", 1_000)
        expected = [name for name in ("a", "a/b", "a/b/c") if name in at[1_019]]
        assert ([key_topic(key) for key in piece.keys], piece.covered) == (expected, b"a\x01")
    state.close()


def test_what_has_expired_is_not_there(tmp_path: Path) -> None:
    state = State(tmp_path)
    group = Group(1)
    group.append(1_000_000, 1, 4 | 1, b"a", b"x", b"c", b"\x02\x00\x00\x00\x05")
    state.apply(group)
    for instant_us, expected in ((999_999, {}), (1_000_000, {"a": SAME}), (5_999_999, {"a": SAME}), (6_000_000, {})):
        assert signs_of(state.topics(Moments(instant_us), 9_000_000), 10) == expected
    assert signs_of(state.topics(Moments(0, 2_000_000), 9_000_000), 10) == {"a": VANISHED}
    state.close()


def test_an_instant_before_the_history_is_refused(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.history.begin(1, 1_000)
    source = state.topics(Moments(1_500), 2_000)
    for moments in (Moments(999), Moments(0, 999), Moments(1_500, 999)):
        with pytest.raises(HistoryTrimmed):
            state.topics(moments, 2_000)
    state.history.begin(1, 1_600)
    with pytest.raises(HistoryTrimmed):
        source.piece(b"", b"", 10)
    state.close()
