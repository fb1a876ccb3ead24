"""Topic filters as regular expressions and as masks of Arrow arrays (MQTT 3.1.1, 4.7).

Owns: what Spark's form (`topic_filters`) and Arrow's form have in common, and Arrow's form.
Never: the rules themselves: those are in `protocol.topics`.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from embermq.protocol.topics import check_topic_filter, has_wildcard

MATCHES_FUNCTION: Final = "mqtt_matches"
"""The function of SQL: `mqtt_matches(filter, topic)`."""


_OF_SUBSCRIPTIONS: Final = ("$share/", "$asof/", "$replay/")


def filter_problem(topic_filter: str) -> str | None:
    """Why a filter is none for messages of the log, or None; one for subscriptions only would match nothing."""
    for prefix in _OF_SUBSCRIPTIONS:
        if topic_filter.startswith(prefix):
            return f"{prefix} is for subscriptions only: name the topics themselves"
    return check_topic_filter(topic_filter)


def valid_filter(topic_filter: str) -> str:
    """Returns the filter; ValueError says why it is not valid."""
    problem = check_topic_filter(topic_filter)
    if problem is not None:
        raise ValueError(f"{topic_filter!r} is no topic filter: {problem}")
    return topic_filter


def levels_regex(topic_filter: str, level_regex: str) -> str:
    """A filter as a regular expression, where `level_regex` stands for a level that `+` matches."""
    levels = topic_filter.split("/")
    tail = ""
    if levels[-1] == "#":
        levels.pop()
        tail = "(?:/.*)?"
    return "/".join(level_regex if level == "+" else re.escape(level) for level in levels) + tail


def arrow_mask(names: pa.Array, topic_filter: str) -> pa.Array:
    """Whether a filter matches the names of an Arrow string array."""
    if not has_wildcard(topic_filter):
        return pc.equal(names, topic_filter)
    if topic_filter == "#":
        return pc.invert(pc.starts_with(names, "$"))
    # RE2 has no lookahead, so the rule for '$' is a second mask.
    mask = pc.match_substring_regex(names, rf"(?s)\A{levels_regex(topic_filter, '[^/]*')}\z")
    if topic_filter.startswith("+"):
        mask = pc.and_(mask, pc.invert(pc.starts_with(names, "$")))
    return mask
