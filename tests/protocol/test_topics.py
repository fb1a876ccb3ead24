"""Topic names and filters: what is valid, what matches what, and which filter covers which."""

from itertools import product

import pytest
from hypothesis import given, settings

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.topics import (
    TOPIC_BYTES_MAX,
    check_text,
    check_topic_filter,
    check_topic_name,
    covers,
    decode_text,
    has_wildcard,
    intersection,
    matches,
)
from support.clauses import v311
from support.packet_strategies import short_names, topic_filters

DEEPEST = "/" * TOPIC_BYTES_MAX


@v311("MQTT-4.7.3-1", "MQTT-4.7.3-4")
@pytest.mark.parametrize("name", ["a", "/", "//", "a/", "/a", "a b", "$SYS/x", "\ufeff", "A", "ä/\U0001f525", "a/$b"])
def test_a_topic_name_is_any_text_of_one_character_or_more(name: str) -> None:
    assert check_topic_name(name) is None
    assert check_topic_filter(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("", "empty", marks=v311("MQTT-4.7.3-1")),
        pytest.param("+", "wildcard", marks=v311("MQTT-3.3.2-2", "MQTT-4.7.1-1")),
        pytest.param("a/+/b", "wildcard", marks=v311("MQTT-3.3.2-2", "MQTT-4.7.1-1")),
        pytest.param("a+", "wildcard", marks=v311("MQTT-3.3.2-2", "MQTT-4.7.1-1")),
        pytest.param("#", "wildcard", marks=v311("MQTT-3.3.2-2", "MQTT-4.7.1-1")),
        pytest.param("a/#", "wildcard", marks=v311("MQTT-3.3.2-2", "MQTT-4.7.1-1")),
        pytest.param("a\0b", "U+0000", marks=v311("MQTT-4.7.3-2")),
    ],
)
def test_a_bad_topic_name_is_told_why(name: str, problem: str) -> None:
    assert problem in (check_topic_name(name) or "")


@v311("MQTT-4.7.1-2", "MQTT-4.7.1-3")
@pytest.mark.parametrize(
    "topic_filter", ["#", "+", "/#", "+/#", "a/#", "+/+", "/+", "+/", "a/+/b", "+/a/#", "a//+", "$SYS/#", "//#"]
)
def test_a_wildcard_that_fills_its_level_is_valid(topic_filter: str) -> None:
    assert check_topic_filter(topic_filter) is None
    assert has_wildcard(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "problem"),
    [
        pytest.param("", "empty", marks=v311("MQTT-4.7.3-1")),
        *[
            pytest.param(topic_filter, "'#'", marks=v311("MQTT-4.7.1-2"))
            for topic_filter in ["a#", "#/a", "a/#/b", "#/", "##", "a/b#", "#/#", "#a", "/#/", "+#"]
        ],
        *[
            pytest.param(topic_filter, "'+'", marks=v311("MQTT-4.7.1-3"))
            for topic_filter in ["+a", "a+", "a/+b/c", "++", "a/b+/#", "/++/"]
        ],
        pytest.param("a/\0/#", "U+0000", marks=v311("MQTT-4.7.3-2")),
    ],
)
def test_a_bad_topic_filter_is_told_why(topic_filter: str, problem: str) -> None:
    assert problem in (check_topic_filter(topic_filter) or "")


@v311("MQTT-1.5.3-2")
def test_a_text_may_be_anything_but_null() -> None:
    assert check_text("") is None
    assert check_text("\x01\x7f\x9f\ufdd0\uffff") is None
    assert check_text("a\0") is not None


@v311("MQTT-4.7.3-3")
def test_the_longest_topic_has_as_many_levels_as_it_likes() -> None:
    assert check_topic_name(DEEPEST) is None
    assert matches(DEEPEST, DEEPEST)
    assert matches("/" * 60_000 + "#", DEEPEST)
    assert matches("+/" * 65_535 + "+", DEEPEST)
    assert not matches("+/" * 65_534 + "+", DEEPEST)
    assert covers("/" * 60_000 + "#", DEEPEST)


def test_a_filter_without_wildcard_has_none() -> None:
    assert not has_wildcard("a/b")
    assert not has_wildcard("/")


MATCHES = [
    ("a", "a"),
    ("a/b", "a/b"),
    ("sport/#", "sport"),
    ("sport/#", "sport/"),
    ("sport/#", "sport/tennis/player1"),
    ("#", "a"),
    ("#", "/"),
    ("#", "a/b/c"),
    ("+", "a"),
    ("+/+", "/a"),
    ("/+", "/a"),
    ("+/", "a/"),
    ("+/+", "/"),
    ("a/+", "a/"),
    ("a/+/c", "a/b/c"),
    ("a/+/c", "a//c"),
    ("+/b/#", "a/b"),
    ("+/#", "a"),
    ("//#", "/"),
    ("//#", "//"),
    ("$SYS/#", "$SYS"),
    ("$SYS/#", "$SYS/a"),
    ("$SYS/+", "$SYS/a"),
    ("a/#", "a/$b"),
    ("+/$b", "a/$b"),
]
DIFFERS = [
    ("a", "A"),
    ("a", "a/"),
    ("a", "/a"),
    ("a/b", "a"),
    ("a", "a/b"),
    ("+", "/a"),
    ("+", "a/b"),
    ("a/+", "a"),
    ("a/+", "a/b/c"),
    ("a/+/#", "a"),
    ("a/#", "ab"),
    ("a/#", "b"),
    ("a/b/#", "a"),
    ("//#", "a"),
    ("/a", "a"),
    ("é", "e\u0301"),
    ("a ", "a"),
]


@v311("MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-4.7.3-4")
@pytest.mark.parametrize(("topic_filter", "topic_name"), MATCHES)
def test_a_filter_matches(topic_filter: str, topic_name: str) -> None:
    assert matches(topic_filter, topic_name)


@v311("MQTT-4.7.3-4")
@pytest.mark.parametrize(("topic_filter", "topic_name"), DIFFERS)
def test_a_filter_does_not_match(topic_filter: str, topic_name: str) -> None:
    assert not matches(topic_filter, topic_name)


@v311("MQTT-4.7.2-1")
@pytest.mark.parametrize("topic_filter", ["#", "+", "+/a", "+/#", "+/+"])
def test_a_leading_wildcard_does_not_see_dollar_topics(topic_filter: str) -> None:
    assert not matches(topic_filter, "$SYS")
    assert not matches(topic_filter, "$SYS/a")
    assert not covers(topic_filter, "$SYS/a")


def model(filter_levels: list[str], name_levels: list[str]) -> bool:
    """4.7.1 said once more, level by level from the front, without a loop."""
    if filter_levels == ["#"]:
        return True
    if not filter_levels or not name_levels:
        return not filter_levels and not name_levels
    first_fits = filter_levels[0] in ("+", name_levels[0])
    return first_fits and model(filter_levels[1:], name_levels[1:])


@settings(deadline=None, max_examples=400)
@given(topic_filters, short_names)
def test_matching_agrees_with_the_definition(topic_filter: str, topic_name: str) -> None:
    hidden = topic_name.startswith("$") and topic_filter[0] in "+#"
    expected = not hidden and model(topic_filter.split("/"), topic_name.split("/"))
    assert matches(topic_filter, topic_name) == expected


@settings(deadline=None, max_examples=400)
@given(topic_filters)
def test_valid_filters_are_found_valid(topic_filter: str) -> None:
    assert check_topic_filter(topic_filter) is None


def test_an_intersection_matches_what_both_filters_match() -> None:
    names = ["/".join(levels) for depth in range(1, 5) for levels in product(["", "a", "z", "$S"], repeat=depth)]
    texts = ["/".join(levels) for depth in range(1, 4) for levels in product(["", "a", "+", "$S", "#"], repeat=depth)]
    filters = [text for text in texts if check_topic_filter(text) is None]
    matched = {text: {name for name in names if name and matches(text, name)} for text in filters}
    for first, second in product(filters, repeat=2):
        common = intersection(first, second)
        expected = matched[first] & matched[second]
        if common is None:
            assert not expected, (first, second)
        else:
            assert check_topic_filter(common) is None, (first, second)
            assert matched[common] == expected, (first, second, common)


def test_covering_is_judged_right_for_all_short_filters() -> None:
    names = ["/".join(levels) for depth in range(1, 5) for levels in product(["", "a", "z", "$S"], repeat=depth)]
    texts = ["/".join(levels) for depth in range(1, 4) for levels in product(["", "a", "+", "$S", "#"], repeat=depth)]
    filters = [text for text in texts if check_topic_filter(text) is None]
    matched = {text: {name for name in names if name and matches(text, name)} for text in filters}
    pairs = [(granted, asked) for granted in filters for asked in filters]
    too_kind = [pair for pair in pairs if covers(*pair) and not matched[pair[0]] >= matched[pair[1]]]
    too_strict = [pair for pair in pairs if not covers(*pair) and matched[pair[0]] >= matched[pair[1]]]
    assert too_kind == []
    # Equal only because no topic name is empty; to say no here is on the safe side.
    assert set(too_strict) == {("+/#", "#"), ("/+/#", "/#"), ("+/+/#", "/#")}


@pytest.mark.parametrize(
    ("granted", "asked"),
    [
        ("#", "#"),
        ("#", "+"),
        ("#", "a/b/#"),
        ("a/#", "a"),
        ("a/#", "a/#"),
        ("a/#", "a/+/b"),
        ("+/b", "a/b"),
        ("+/b", "+/b"),
        ("+/#", "a/#"),
        ("$SYS/#", "$SYS/+"),
        ("+/+", "a/+"),
    ],
)
def test_a_wider_filter_covers(granted: str, asked: str) -> None:
    assert covers(granted, asked)


@pytest.mark.parametrize(
    ("granted", "asked"),
    [
        ("a", "#"),
        ("+", "#"),
        ("a/+", "a/#"),
        ("a/+/#", "a/#"),
        ("a/b", "a/+"),
        ("a/#", "+/b"),
        ("+", "+/+"),
        ("+/+", "+"),
        ("#", "$SYS/#"),
        ("+/#", "$SYS"),
    ],
)
def test_a_narrower_filter_does_not_cover(granted: str, asked: str) -> None:
    assert not covers(granted, asked)


@pytest.mark.parametrize(
    ("raw", "clause"), [(b"\xff", "utf8"), (b"\xed\xa0\x80", "utf8"), (b"\xc0\x80", "utf8"), (b"a\x00b", "null")]
)
def test_bytes_that_are_no_mqtt_string_are_refused_with_the_clause_of_their_protocol(raw: bytes, clause: str) -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode_text(raw, "utf8", "null")
    assert caught.value.clause == clause


def test_a_byte_order_mark_stays_in_a_string() -> None:
    assert decode_text(b"\xef\xbb\xbfa", "utf8", "null") == "\ufeffa"
