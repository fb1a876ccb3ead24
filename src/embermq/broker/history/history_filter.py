"""The topic filters of history subscriptions: `$asof/<instant>/<filter>`, `$replay/<from>[/<to>]/<filter>`.

Owns: reading such a filter, and what is wrong with it.
Never: a clock, or how far back the log goes.

An instant is one level. It is read more strictly here than elsewhere: a first level such as `42` or `15m` is common in
topic names, and `$replay/-1h/42/temperature` must mean the topic `42/temperature`.
"""

import re
from typing import Final, final

from embermq.instants import instant_us
from embermq.protocol.topics import check_topic_filter

AS_OF_PREFIX: Final = "$asof/"
REPLAY_PREFIX: Final = "$replay/"
OPEN: Final = ".."
"""In place of `<from>`: from the log's beginning on. In place of `<to>`: without an end."""
NOW: Final = "now"
AHEAD_MAX_US: Final = 60_000_000
"""An instant that is ahead of the server's clock by no more than this counts as now: clocks differ."""

_AGO: Final = re.compile(r"-([0-9]{1,9}[smhd])")
_RFC_3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|-[0-9]{2}:[0-9]{2})?"
)
_EXPECTED: Final = "an instant such as 2026-01-31T14:03:07Z, -15m (s, m, h, d) or now"
_SHOWN_CHARACTERS: Final = 40


@final
class HistoryFilter:
    """What a history subscription asks for.

    `is_as_of`: the retained set of `from_us`. Else the messages from `from_us` on (0: from the log's beginning) and
    before `to_us` (0: without an end). All instants are at most the present one.
    """

    __slots__ = ("is_as_of", "from_us", "to_us", "topic_filter")

    def __init__(self, is_as_of: bool, from_us: int, to_us: int, topic_filter: str) -> None:
        self.is_as_of: Final = is_as_of
        self.from_us: Final = from_us
        self.to_us: Final = to_us
        self.topic_filter: Final = topic_filter


def is_history(topic_filter: str) -> bool:
    """Whether a topic filter asks for history."""
    return topic_filter.startswith((AS_OF_PREFIX, REPLAY_PREFIX))


def plain_filter(topic_filter: str) -> str:
    """The filter behind the instants of a valid history filter."""
    return read_history_filter(topic_filter, AHEAD_MAX_US, is_checked=False).topic_filter


def read_history_filter(text: str, now_us: int, *, is_checked: bool = True) -> HistoryFilter:
    """A history filter at an instant; ValueError says what is wrong with it, in a sentence for the client.

    Without `is_checked` its instants may be any.
    """
    kind, _, rest = text.partition("/")
    first, _, rest = rest.partition("/")
    if text.startswith(AS_OF_PREFIX):
        expected = "$asof/<instant>/<filter>"
        from_us = _instant(first, expected, now_us, is_checked)
        to_us = 0
    else:
        expected = "$replay/<from>/<filter> or $replay/<from>/<to>/<filter>"
        from_us = 0 if first == OPEN else _instant(first, expected, now_us, is_checked)
        second, _, after = rest.partition("/")
        to_us = 0
        if second == OPEN:
            rest = after
        elif _is_instant(second):
            to_us = _instant(second, expected, now_us, is_checked)
            rest = after
        if is_checked and 0 < to_us < from_us:
            raise ValueError(f"<to> is before <from>; expected {expected}")
    wrong = check_topic_filter(rest)
    if wrong is not None:
        raise ValueError(f"{wrong}; expected {expected}")
    if is_history(rest) or rest.startswith("$share/"):
        raise ValueError(f"the <filter> of {kind} is a plain topic filter, not {rest.partition('/')[0]}")
    return HistoryFilter(text.startswith(AS_OF_PREFIX), from_us, to_us, rest)


def _is_instant(level: str) -> bool:
    return level == NOW or _AGO.fullmatch(level) is not None or _RFC_3339.fullmatch(level) is not None


def _instant(level: str, expected: str, now_us: int, is_checked: bool) -> int:
    """An instant, at least 1 and at most the present one."""
    if not _is_instant(level):
        shown = level if len(level) <= _SHOWN_CHARACTERS else f"{level[:_SHOWN_CHARACTERS]}..."
        raise ValueError(f"{shown!r} is not {_EXPECTED}; expected {expected}")
    try:
        asked_us = instant_us(level.removeprefix("-"), now_us)
    except ValueError:  # of its form, but no instant of the calendar
        raise ValueError(f"{level!r} is not {_EXPECTED}; expected {expected}") from None
    if is_checked and asked_us > now_us + AHEAD_MAX_US:
        raise ValueError(f"{level} is in the future")
    return max(1, min(asked_us, now_us))
