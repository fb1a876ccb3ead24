"""Shapes of topic filters: what one client's filters can add to the walk for one topic name."""

from random import Random

from embermq.broker.shapes import BEGINNINGS_MAX, FilterShapes, shape_of


def test_the_shape_says_which_levels_are_wildcards() -> None:
    assert shape_of("a/+/b/#") == ".+."
    assert shape_of("$share/name/+/b") == "+."
    assert shape_of("a/b") == ""
    assert shape_of("#") == ""


def combinations(levels: int) -> list[str]:
    return ["/".join("+" if number >> level & 1 else "a" for level in range(levels)) for number in range(1 << levels)]


def test_filters_of_one_shape_count_once() -> None:
    shapes = FilterShapes(f"site/{number}/+/state" for number in range(20_000))
    assert len(shapes) == 4


def test_the_bound_holds_at_it_and_one_past_it() -> None:
    shapes = FilterShapes()
    for topic_filter in combinations(14):
        if shapes.admits(topic_filter):
            shapes.add(topic_filter)
    assert BEGINNINGS_MAX - 14 < len(shapes) <= BEGINNINGS_MAX
    # What is there already, and what has no wildcard, is always admitted.
    assert shapes.admits("b/" * 13 + "b")
    assert shapes.admits(combinations(14)[0])
    left = BEGINNINGS_MAX - len(shapes)
    assert shapes.admits("/".join(["+"] * 30 + ["x"])) is (left >= 31)


def test_filters_that_are_gone_count_nothing() -> None:
    filters = [*combinations(7), *combinations(5), "a/#", "#", "b"]
    shapes = FilterShapes(filters)
    Random(7).shuffle(filters)
    for topic_filter in filters:
        shapes.remove(topic_filter)
    assert len(shapes) == 0
    assert not shapes._filters
