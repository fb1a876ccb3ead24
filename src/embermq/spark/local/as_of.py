"""The retained set as of any instant, without Spark. The rules are those of `queries.as_of`."""

from datetime import timedelta
from typing import Final

import pyarrow as pa

from embermq.instants import EPOCH
from embermq.spark.errors import InGap
from embermq.spark.local.tables import LocalTables, instant
from embermq.spark.source.topic_masks import valid_filter

_AS_OF: Final = """
select * exclude (valid_to, offset_to) from retained_history
where valid_from <= $1::timestamptz and (valid_to is null or valid_to > $1::timestamptz) and mqtt_matches($2, topic)
order by topic
"""

_GAP: Final = """
select * from gaps where job = 'retained' and $1::timestamptz < to_timestamp
and (from_timestamp is null or from_timestamp < $1::timestamptz) limit 1
"""


def retained_as_of(tables: LocalTables, instant_us: int, topic_filter: str = "#", limit: int | None = None) -> pa.Table:
    """The retained messages as of an instant, of the topics that a filter matches, by topic.

    NotKnown if the instant lies in a gap, or not within `LocalTables.retained_known`.
    """
    if "gaps" in tables.names:
        for row in tables.rows(_GAP, (instant(instant_us),)):
            moment = EPOCH + timedelta(microseconds=instant_us)
            raise InGap(moment, row["from_offset"], row["to_offset"], row["to_timestamp"], row.get("why") or "")
    tables.retained_known().check(instant_us)
    return tables.batch(_AS_OF, (instant(instant_us), valid_filter(topic_filter)), limit)
