"""Topic filters as expressions that Spark and Arrow run natively (MQTT 3.1.1, 4.7).

Owns: the translation of a filter into a Column, into SQL, and into an Arrow mask.
Never: the rules themselves: those are in `protocol.topics`, and a property test compares the three forms with them.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from embermq.protocol.topics import check_topic_filter, has_wildcard

MATCHES_FUNCTION: Final = "mqtt_matches"

# Filter and name as SQL expressions. Slower than a literal filter, since it splits both: for joins and ad hoc SQL.
_COLUMN_FORM: Final = """(
    {name} = {filter}
    or (not ({name} like '$%' and ({filter} like '+%' or {filter} = '#'))
        and case
            when {filter} = '#' then true
            when {filter} like '%/#' then
                size(split({name}, '/', -1)) >= size(split({filter}, '/', -1)) - 1
                and forall(
                    zip_with(slice(split({filter}, '/', -1), 1, size(split({filter}, '/', -1)) - 1),
                             slice(split({name}, '/', -1), 1, size(split({filter}, '/', -1)) - 1),
                             (wanted, level) -> wanted = '+' or wanted = level),
                    fits -> fits)
            else
                size(split({name}, '/', -1)) = size(split({filter}, '/', -1))
                and forall(
                    zip_with(split({filter}, '/', -1), split({name}, '/', -1),
                             (wanted, level) -> wanted = '+' or wanted = level),
                    fits -> fits)
        end)
)"""


def valid_filter(topic_filter: str) -> str:
    """Returns the filter; ValueError says why it is not valid."""
    problem = check_topic_filter(topic_filter)
    if problem is not None:
        raise ValueError(f"{topic_filter!r} is no topic filter: {problem}")
    return topic_filter


def literal_prefix(topic_filter: str) -> str:
    """What every matching name begins with. For `a/#` it is `a`: the parent matches too."""
    kept: list[str] = []
    for level in topic_filter.split("/"):
        if level == "#":
            return "/".join(kept)
        if level == "+":
            return "".join(f"{name}/" for name in kept)
        kept.append(level)
    return topic_filter


def _levels_regex(topic_filter: str, level_regex: str) -> str:
    levels = topic_filter.split("/")
    tail = ""
    if levels[-1] == "#":
        levels.pop()
        tail = "(?:/.*)?"
    return "/".join(level_regex if level == "+" else re.escape(level) for level in levels) + tail


def matches(name: Column, topic_filter: str) -> Column:
    """Whether one filter matches the names of a column."""
    if not has_wildcard(valid_filter(topic_filter)):
        return name == F.lit(topic_filter)
    if topic_filter == "#":
        return ~name.startswith("$")
    # `\\z`, not `$`, which also matches before a newline at the end.
    refuse_dollar = r"(?!\$)" if topic_filter.startswith("+") else ""
    matched = name.rlike(rf"(?s)\A{refuse_dollar}{_levels_regex(topic_filter, '[^/]*')}\z")
    prefix = literal_prefix(topic_filter)
    return name.startswith(prefix) & matched if prefix else matched


def matches_column(name: str, topic_filter: str) -> Column:
    """Whether the filters of one column match the names of another; both are SQL expressions."""
    return F.expr(_COLUMN_FORM.format(name=name, filter=topic_filter))


def matches_function_sql() -> str:
    """The statement that creates `mqtt_matches(filter, topic)` in SQL. Spark inlines it, so it runs natively."""
    body = _COLUMN_FORM.format(name="topic_name", filter="topic_filter")
    return (
        f"create or replace temporary function {MATCHES_FUNCTION}(topic_filter string, topic_name string) "
        f"returns boolean return {body}"
    )


def arrow_mask(names: pa.Array, topic_filter: str) -> pa.Array:
    """Whether a filter matches the names of an Arrow string array."""
    if not has_wildcard(topic_filter):
        return pc.equal(names, topic_filter)
    if topic_filter == "#":
        return pc.invert(pc.starts_with(names, "$"))
    # RE2 has no lookahead, so the rule for '$' is a second mask.
    mask = pc.match_substring_regex(names, rf"(?s)\A{_levels_regex(topic_filter, '[^/]*')}\z")
    if topic_filter.startswith("+"):
        mask = pc.and_(mask, pc.invert(pc.starts_with(names, "$")))
    return mask
