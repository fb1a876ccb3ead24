"""The retained set as of any instant, on DuckDB."""

from datetime import timedelta
from typing import Final

import pyarrow as pa

from embermq.instants import EPOCH
from embermq.lake.duck import LocalTables, instant
from embermq.lake.errors import InGap
from embermq.lake.history import as_of_sql, gap_sql
from embermq.lake.schema import HISTORY_VIEW
from embermq.lake.topic_masks import valid_filter

_AT: Final = "$1::timestamptz"
_AS_OF: Final = f"""
select * exclude (valid_to, offset_to) from {HISTORY_VIEW} where {as_of_sql(_AT)} and mqtt_matches($2, topic)
order by topic
"""
_GAP: Final = f"select * from gaps where {gap_sql(_AT)} limit 1"


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
