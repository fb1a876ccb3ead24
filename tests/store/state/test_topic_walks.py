"""Walks through the topics: one level at a time with counts, and by a word."""

from embermq.store.engines.memory import MemoryStore
from embermq.store.state.retained_keys import topic_key
from embermq.store.state.sorted_keys import ListedTopics, SortedKeys
from embermq.store.state.topic_walks import PIECE_KEYS, LevelWalk, WordSearch
from embermq.store.topic_tree import UNKNOWN_COUNT, Moments, TreeLevel, TreeWalk, position_after


def topics(*names: str) -> ListedTopics:
    keys = SortedKeys()
    for name in names:
        keys.add(topic_key(name))
    return ListedTopics(keys)


def whole(walk: TreeWalk) -> list[TreeLevel]:
    found: list[TreeLevel] = []
    while not walk.is_done():
        found += walk.step()
    assert walk.step() == []
    return found


def shown(levels: list[TreeLevel]) -> list[tuple[str, str, int, bool, bool]]:
    return [(each.level, each.topic_name, each.topics, each.is_retained, each.has_children) for each in levels]


TREE = topics("a", "a/b", "a/b/c", "a/d", "b/x/y", "/x", "/", "a//z", "$own/a", "a\x01", "a\x01/b", "ab")


def test_each_level_has_its_topics_counted() -> None:
    assert shown(whole(LevelWalk(TREE, None, ""))) == [
        ("", "", 2, False, True),
        ("$own", "$own", 1, False, True),
        ("a", "a", 5, True, True),
        ("a\x01", "a\x01", 2, True, True),
        ("ab", "ab", 1, True, False),
        ("b", "b", 1, False, True),
    ]
    assert shown(whole(LevelWalk(TREE, "a", ""))) == [
        ("", "a/", 1, False, True),
        ("b", "a/b", 2, True, True),
        ("d", "a/d", 1, True, False),
    ]
    assert shown(whole(LevelWalk(TREE, "", ""))) == [("", "/", 1, True, False), ("x", "/x", 1, True, False)]
    assert whole(LevelWalk(TREE, "ab", "")) == whole(LevelWalk(TREE, "nothing/here", "")) == []


def test_a_walk_goes_on_after_a_level() -> None:
    names = [each.level for each in whole(LevelWalk(TREE, None, position_after("a")))]
    assert names == ["a\x01", "ab", "b"]
    assert whole(LevelWalk(TREE, None, position_after("")))[0].level == "$own"


def test_a_branch_that_is_too_large_is_not_counted_and_those_after_it_are() -> None:
    many = [f"a/{number:05}" for number in range(4 * PIECE_KEYS)]
    source = topics("0", *many, "b/c", "b/d")
    found = whole(LevelWalk(source, None, "", work_max=5 * PIECE_KEYS))
    assert [(each.level, each.topics, each.has_children) for each in found] == [
        ("0", 1, False),
        ("a", UNKNOWN_COUNT, True),
        ("b", 2, True),
    ]
    enough = whole(LevelWalk(source, None, "", work_max=10 * PIECE_KEYS))
    assert [each.topics for each in enough] == [1, len(many), 2]


def test_without_any_work_for_counts_all_levels_are_found() -> None:
    names = [f"{number:04}/{below}" for number in range(100) for below in range(30)]
    found = whole(LevelWalk(topics(*names), None, "", work_max=1))
    assert [each.level for each in found] == [f"{number:04}" for number in range(100)]
    assert all(each.has_children for each in found)


def test_a_word_is_found_in_either_case_and_across_levels() -> None:
    source = topics("Plant/7/Temp", "plant/7/humidity", "plant/ÄRGER", "plant/x", "other/plant/7")

    def found(word: str, position: str = "") -> list[str]:
        search = WordSearch(source, word, position)
        names: list[str] = []
        while not search.is_done():
            names += search.step()
        assert search.step() == []
        return names

    assert found("plant/7") == ["Plant/7/Temp", "other/plant/7", "plant/7/humidity"]
    assert found("TEMP") == ["Plant/7/Temp"]
    assert found("ärger") == ["plant/ÄRGER"]
    assert found("nothing") == []
    assert found("plant/7", "p") == ["plant/7/humidity"]


def test_the_engine_in_memory_has_a_tree() -> None:
    store = MemoryStore()
    assert whole(store.retained.levels(None, "", Moments())) == []
    assert store.history.begins_us() == 0
