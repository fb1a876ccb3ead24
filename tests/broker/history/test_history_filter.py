"""The topic filters of history subscriptions: what they mean, and what is wrong with the others."""

import pytest

from embermq.broker.history.history_filter import is_history, plain_filter, read_history_filter
from embermq.instants import instant_us

NOW_US = instant_us("2026-03-01T12:00:00Z")
HOUR_US = 3600 * 1_000_000


def test_only_the_two_prefixes_ask_for_history() -> None:
    assert is_history("$asof/now/#")
    assert is_history("$replay/now/#")
    assert not is_history("$SYS/#")
    assert not is_history("$share/g/a")
    assert not is_history("a/$replay/now/#")
    assert not is_history("$replays/now/#")


@pytest.mark.parametrize(
    ("text", "ago_us"),
    [
        ("now", 0),
        ("-0s", 0),
        ("-90s", 90_000_000),
        ("-15m", 15 * 60_000_000),
        ("-1h", HOUR_US),
        ("-2d", 48 * HOUR_US),
        ("2026-03-01T11:00:00Z", HOUR_US),
        ("2026-03-01T11:00:00", HOUR_US),
        ("2026-03-01T11:59:59.5Z", 500_000),
        ("2026-03-01T11:59:59.123456789Z", 876_544),
        ("2026-03-01T07:00:00-04:00", HOUR_US),
        ("2026-03-01T12:00:30Z", 0),  # ahead of the clock by less than a minute
    ],
)
def test_an_instant_is_rfc_3339_or_a_time_ago_or_now(text: str, ago_us: int) -> None:
    asked = read_history_filter(f"$asof/{text}/a/b", NOW_US)
    assert (asked.is_as_of, asked.from_us, asked.topic_filter) == (True, NOW_US - ago_us, "a/b")
    asked = read_history_filter(f"$replay/{text}/a/b", NOW_US)
    assert (asked.is_as_of, asked.from_us, asked.to_us, asked.topic_filter) == (False, NOW_US - ago_us, 0, "a/b")


def test_an_instant_before_1970_is_the_first_one() -> None:
    assert read_history_filter("$asof/-999999999d/a", NOW_US).from_us == 1
    assert read_history_filter("$asof/0001-01-01T00:00:00Z/a", NOW_US).from_us == 1


@pytest.mark.parametrize(
    ("text", "to_ago_us", "topic_filter"),
    [
        ("$replay/-1h/-30m/a/#", HOUR_US // 2, "a/#"),
        ("$replay/-1h/now/a", 0, "a"),
        ("$replay/-1h/2026-03-01T11:30:00Z/+", HOUR_US // 2, "+"),
        ("$replay/-1h/2026-03-01T12:00:59Z/+", 0, "+"),
        ("$replay/-1h/now/now/a", 0, "now/a"),
    ],
)
def test_a_second_level_that_is_an_instant_is_the_end(text: str, to_ago_us: int, topic_filter: str) -> None:
    asked = read_history_filter(text, NOW_US)
    assert (asked.from_us, asked.to_us, asked.topic_filter) == (NOW_US - HOUR_US, NOW_US - to_ago_us, topic_filter)


@pytest.mark.parametrize(
    ("text", "from_us", "topic_filter"),
    [
        ("$replay/-1h/../-30m/a", NOW_US - HOUR_US, "-30m/a"),
        ("$replay/../a", 0, "a"),
        ("$replay/../../a", 0, "a"),
        ("$replay/-1h//a", NOW_US - HOUR_US, "/a"),
        ("$replay/-1h/42/temperature", NOW_US - HOUR_US, "42/temperature"),
        ("$replay/-1h/15m/a", NOW_US - HOUR_US, "15m/a"),
        ("$replay/-1h/2026-03-01/a", NOW_US - HOUR_US, "2026-03-01/a"),
        ("$replay/-1h/$SYS/#", NOW_US - HOUR_US, "$SYS/#"),
    ],
)
def test_two_dots_are_no_bound_and_other_levels_belong_to_the_filter(
    text: str, from_us: int, topic_filter: str
) -> None:
    asked = read_history_filter(text, NOW_US)
    assert (asked.from_us, asked.to_us, asked.topic_filter) == (from_us, 0, topic_filter)
    assert plain_filter(text) == topic_filter


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("$asof/", "'' is not an instant"),
        ("$asof/#", "'#' is not an instant"),
        ("$asof/yesterday/a", "'yesterday' is not an instant"),
        ("$asof/15m/a", "'15m' is not an instant"),
        ("$asof/1769864587/a", "'1769864587' is not an instant"),
        ("$asof/../a", "'..' is not an instant"),
        ("$asof/-15m", "empty topic filter"),
        ("$asof/-15m/", "empty topic filter"),
        ("$asof/2026-02-30T00:00:00Z/a", "is not an instant"),
        ("$asof/2026-03-01T12:02:00Z/a", "in the future"),
        ("$asof/-\u0661\u0665m/a", "is not an instant"),
        ("$asof/-99999999999d/a", "is not an instant"),
        ("$asof/now/$share/g/a", "a plain topic filter, not $share"),
        ("$asof/now/$replay/now/a", "a plain topic filter, not $replay"),
        ("$replay/#", "'#' is not an instant"),
        ("$replay/+/a", "'+' is not an instant"),
        ("$replay/-1h", "empty topic filter"),
        ("$replay/-1h/now", "empty topic filter"),
        ("$replay/-1h/..", "empty topic filter"),
        ("$replay/-1h/-2h/a", "<to> is before <from>"),
        ("$replay/2027-01-01T00:00:00Z/a", "in the future"),
        ("$replay/-1h/2027-01-01T00:00:00Z/a", "in the future"),
        ("$replay/" + "x" * 1000 + "/a", "'" + "x" * 40 + "...' is not an instant"),
    ],
)
def test_what_is_wrong_is_said_in_a_short_sentence(text: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_history_filter(text, NOW_US)
    assert why in str(refused.value)
    assert len(str(refused.value)) < 250
