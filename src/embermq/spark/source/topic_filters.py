"""Topic filters as expressions that Spark runs natively (MQTT 3.1.1, 4.7).

Owns: the translation of a filter into a Column and into SQL; `topic_masks` has the one for Arrow.
Never: the rules themselves: those are in `protocol.topics`, and a property test compares all forms with them.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from embermq.lake.topic_masks import MATCHES_FUNCTION, levels_regex, valid_filter
from embermq.protocol.topics import has_wildcard

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


def matches(name: Column, topic_filter: str) -> Column:
    """Whether one filter matches the names of a column."""
    if not has_wildcard(valid_filter(topic_filter)):
        return name == F.lit(topic_filter)
    if topic_filter == "#":
        return ~name.startswith("$")
    # `\\z`, not `$`, which also matches before a newline at the end.
    refuse_dollar = r"(?!\$)" if topic_filter.startswith("+") else ""
    matched = name.rlike(rf"(?s)\A{refuse_dollar}{levels_regex(topic_filter, '[^/]*')}\z")
    prefix = literal_prefix(topic_filter)
    return name.startswith(prefix) & matched if prefix else matched


def matches_column(name: str, topic_filter: str) -> Column:
    """Whether the filters of one column match the names of another; both are SQL expressions."""
    return F.expr(_COLUMN_FORM.format(name=name, filter=topic_filter))


def matches_function_sql(schema: str | None = None) -> str:
    """The statement that creates `mqtt_matches(filter, topic)` in SQL, for a session or, permanently, in a schema.

    Spark inlines it, so it runs natively.
    """
    body = _COLUMN_FORM.format(name="topic_name", filter="topic_filter")
    name = f"temporary function {MATCHES_FUNCTION}" if schema is None else f"function {schema}.{MATCHES_FUNCTION}"
    return f"create or replace {name}(topic_filter string, topic_name string) returns boolean return {body}"
