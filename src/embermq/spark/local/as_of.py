"""The retained set as of any instant, without Spark. The rules are those of `queries.as_of`."""

from typing import Final

import pyarrow as pa

from embermq.spark.local.tables import LocalTables, instant
from embermq.spark.source.topic_masks import valid_filter

_AS_OF: Final = """
select topic, payload, qos, "offset", valid_from from retained_history
where valid_from <= $1::timestamptz and (valid_to is null or valid_to > $1::timestamptz) and mqtt_matches($2, topic)
order by topic
"""


def retained_as_of(tables: LocalTables, instant_us: int, topic_filter: str = "#", limit: int | None = None) -> pa.Table:
    """The retained messages as of an instant, of the topics that a filter matches, by topic."""
    return tables.batch(_AS_OF, (instant(instant_us), valid_filter(topic_filter)), limit)
