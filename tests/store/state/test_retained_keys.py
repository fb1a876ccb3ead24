"""The walk of a filter through sorted keys gives what matching every key would give."""

from bisect import bisect_left
from random import Random

import pytest

from embermq.protocol.topics import matches
from embermq.store.state.retained_keys import (
    CHANGED_AT,
    HISTORY,
    TERMINATOR,
    KeyCursor,
    escape,
    escape_all,
    history_key,
    history_key_of,
    key_topic,
    ranges,
    topic_key,
    topic_keys,
    unescape,
    walk,
)


class CountingCursor(KeyCursor):
    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys
        self.at = 0
        self.moves = 0

    def seek(self, key: bytes) -> bytes | None:
        self.at = bisect_left(self.keys, key)
        self.moves += 1
        return self.keys[self.at] if self.at < len(self.keys) else None

    def next(self) -> bytes | None:
        self.at += 1
        self.moves += 1
        return self.keys[self.at] if self.at < len(self.keys) else None


LEVELS = ["", "a", "b", "$a", "a!", "\x01", "ü", "ab", "$"]


def random_name(rng: Random) -> str:
    while True:
        name = "/".join(rng.choice(LEVELS) for _ in range(rng.randint(1, 4)))
        if name:
            return name


def random_filter(rng: Random) -> str:
    levels = [rng.choice([*LEVELS, "+", "+", "+"]) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.4:
        levels[-1] = "#"
    return "/".join(levels) or "#"


@pytest.mark.parametrize("seed", range(30))
def test_a_walk_gives_exactly_the_matching_topics_in_order(seed: int) -> None:
    rng = Random(seed)
    names = {random_name(rng) for _ in range(rng.randint(0, 300))}
    keys = sorted(topic_key(name) for name in names)
    for _ in range(60):
        topic_filter = random_filter(rng)
        expected = [key for key in keys if matches(topic_filter, key_topic(key))]
        assert list(walk(topic_filter, b"", CountingCursor(keys))) == expected, topic_filter
        after = topic_key(random_name(rng))
        later = [key for key in expected if key > after]
        assert list(walk(topic_filter, after, CountingCursor(keys))) == later, (topic_filter, after)
        spans = ranges(topic_filter)
        if spans is not None:
            inside = [key for key in keys if any(low <= key and (not high or key < high) for low, high in spans)]
            assert inside == expected, topic_filter


def test_a_topic_is_followed_by_its_subtree_and_nothing_else() -> None:
    names = ["a", "a/b", "a/b/c", "a/", "a!", "a\x01", "ab", "a/\x01", "b"]
    ordered = [key_topic(key) for key in sorted(topic_key(name) for name in names)]
    assert ordered == ["a", "a/", "a/\x01", "a/b", "a/b/c", "a\x01", "a!", "ab", "b"]


def test_a_skip_scan_does_not_touch_what_cannot_match() -> None:
    keys = sorted(topic_key(f"site/{site}/{kind}/{n}") for site in range(10) for kind in "abc" for n in range(100))
    cursor = CountingCursor(keys)
    found = list(walk("site/+/b/7", b"", cursor))
    assert len(found) == 10
    assert cursor.moves < 100


@pytest.mark.parametrize("seed", range(20))
def test_the_keys_of_many_topics_are_those_of_each(seed: int) -> None:
    rng = Random(seed)
    names = [random_name(rng) for _ in range(rng.randint(1, 6))]
    keys = topic_keys([name.encode() for name in names])
    assert keys == [topic_key(name) for name in names]
    escaped = escape_all(keys)
    assert escaped == [escape(key) for key in keys]
    assert [unescape(each) for each in escaped] == keys


def test_the_key_of_a_change_is_topic_instant_and_offset() -> None:
    key = topic_key("a/\x01b")
    expected = HISTORY + b"a\x01\x02\x01b" + TERMINATOR + CHANGED_AT.pack(1 << 50, 7)
    assert history_key(key, 1 << 50, 7) == history_key_of(escape(key), 1 << 50, 7) == expected
