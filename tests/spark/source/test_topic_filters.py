"""Topic filters as Spark and Arrow expressions say what `protocol.topics` says."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from embermq.lake.topic_masks import arrow_mask, valid_filter
from embermq.protocol import topics
from embermq.spark.source.topic_filters import literal_prefix, matches, matches_column

# Levels that expressions get wrong: empty, '$', line ends, and every character that means something to a regex or LIKE.
LEVELS = [
    "",
    "a",
    "b",
    "$",
    "$s",
    "a$",
    "é",
    "\n",
    "a\n",
    ".",
    "*",
    "a.*",
    "[a]",
    "\\",
    "a\\z",
    "(",
    "%",
    "_",
    "^",
    "|",
]

level = st.sampled_from(LEVELS)
names = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(level, st.just("+")), max_size=4))
    if not levels or draw(st.booleans()):
        levels.append("#")
    return "/".join(levels) or "+"


def sample(seed: int, count: int) -> tuple[list[str], list[str]]:
    source = random.Random(seed)
    found_names, found_filters = {"a"}, {"#", "+", "+/#", "a/#", "$s/#"}
    while len(found_names) < count:
        found_names.add("/".join(source.choices(LEVELS, k=source.randint(1, 4))) or "a")
    while len(found_filters) < count:
        levels = source.choices([*LEVELS, "+", "+", "+"], k=source.randint(1, 4))
        found_filters.add("/".join(levels + ["#"] * source.randint(0, 1)) or "#")
    return sorted(found_names), sorted(found_filters)


@settings(max_examples=400, deadline=None)
@given(filters(), st.lists(names, min_size=1, max_size=20))
def test_arrow_mask_agrees_with_the_rules(topic_filter: str, topic_names: list[str]) -> None:
    mask = arrow_mask(pa.array(topic_names), topic_filter).to_pylist()
    assert mask == [topics.matches(topic_filter, name) for name in topic_names]


def test_literal_filter_agrees_with_the_rules(spark: SparkSession) -> None:
    topic_names, topic_filters = sample(7, 150)
    frame = spark.createDataFrame([(name,) for name in topic_names], "topic string").repartition(2)
    columns = [matches(F.col("topic"), one).alias(f"f{number}") for number, one in enumerate(topic_filters)]
    wrong = [
        (one, row["topic"])
        for row in frame.select("topic", *columns).collect()
        for number, one in enumerate(topic_filters)
        if row[f"f{number}"] != topics.matches(one, row["topic"])
    ]
    assert wrong == []


def test_column_filter_agrees_with_the_rules(spark: SparkSession) -> None:
    topic_names, topic_filters = sample(11, 120)
    left = spark.createDataFrame([(one,) for one in topic_filters], "topic_filter string")
    right = spark.createDataFrame([(name,) for name in topic_names], "topic string")
    rows = left.crossJoin(right).select("*", matches_column("topic", "topic_filter").alias("matched")).collect()
    wrong = [tuple(row) for row in rows if row["matched"] != topics.matches(row["topic_filter"], row["topic"])]
    assert wrong == []
    assert len(rows) == len(topic_names) * len(topic_filters)


def test_sql_has_the_rules_as_a_function(spark: SparkSession) -> None:
    row = spark.sql(
        "select mqtt_matches('a/+/#', 'a/b'), mqtt_matches('+/b', '$a/b'), mqtt_matches('$a/#', '$a')"
    ).collect()[0]
    assert list(row) == [True, False, True]


@pytest.mark.parametrize(
    ("topic_filter", "prefix"),
    [
        ("a/b", "a/b"),
        ("a/#", "a"),
        ("#", ""),
        ("+/a", ""),
        ("a/+/b", "a/"),
        ("a/b/+", "a/b/"),
        ("/#", ""),
        ("a//+", "a//"),
    ],
)
def test_literal_prefix_is_what_every_match_begins_with(topic_filter: str, prefix: str) -> None:
    assert literal_prefix(topic_filter) == prefix


def test_what_is_no_filter_is_refused() -> None:
    with pytest.raises(ValueError, match="'a#' is no topic filter"):
        valid_filter("a#")
