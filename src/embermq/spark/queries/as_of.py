"""The retained set as of any instant, from `retained` and `retained_closed`.

Owns: `retained_as_of`, up to which instant it is known, and the view `retained_history`, on Spark. Which intervals they
have is in `embermq.lake.history`.
"""

from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from embermq.instants import EPOCH, NOW, instant_us, microseconds
from embermq.lake.delta import applied
from embermq.lake.errors import LakeError, NotKnown
from embermq.lake.history import SPARK, Part, applied_sql, as_of_sql, history_sql
from embermq.lake.known import Known, RowInstants, recorded
from embermq.lake.lake import Lake
from embermq.lake.schema import HISTORY_VIEW, RETAINED
from embermq.spark.jobs.retained import RETAINED_JOB
from embermq.spark.lake.gaps import check_no_gap
from embermq.spark.lake.tables import quoted
from embermq.spark.session import is_connect
from embermq.spark.source.topic_filters import matches


def check_reached(spark: SparkSession, lake: Lake) -> None:
    """LakeError if Spark Connect may reach a lake that this process does not: gaps and tables would be overlooked."""
    if is_connect(spark) and not lake.exists():
        raise LakeError(f"{lake.place} is no lake here: over Spark Connect the client must reach it as the server does")


def retained_history(spark: SparkSession, lake: Lake) -> DataFrame:
    """Every interval in which a message was retained; `valid_to` and `offset_to` are null while it still is.

    It shows the tables as they are when it is called.
    """
    check_reached(spark, lake)
    # The version first: a batch may be merged between this and the next line.
    version, _, through = applied(lake, "retained", RETAINED_JOB.name)
    sources = (_path(lake, "retained_closed"), f"{_path(lake, 'retained')} version as of {version}")
    closed, current = (Part(f"{one} c", spark.sql(f"select * from {one}").columns) for one in sources)
    return spark.sql(history_sql(SPARK, closed, current, applied_sql(through)))


def _path(lake: Lake, name: str) -> str:
    return f"delta.{quoted(lake.table(name))}"


def retained_known(spark: SparkSession, lake: Lake) -> Known:
    """Between which instants the retained set is known. NotKnown if the lake has read nothing yet."""
    check_reached(spark, lake)
    before = recorded(lake)
    table, closed = (applied(lake, name, RETAINED_JOB.name) for name in RETAINED_JOB.table_names)
    versions = dict(zip(RETAINED_JOB.table_names, (table.version, closed.version), strict=True))

    def rows_us() -> RowInstants:
        oldest = F.min(F.unix_micros("valid_from"))
        newest = F.greatest(F.max(F.unix_micros("valid_from")), F.max(F.unix_micros("valid_to")))
        found = retained_history(spark, lake).agg(oldest, newest).collect()[0]
        return found[0], found[1]

    found = before.known(RETAINED_JOB.name, versions, table.through, rows_us)
    if found is None:
        raise NotKnown(f"{lake.place} has read nothing of the log yet")
    return found


def retained_as_of(spark: SparkSession, lake: Lake, instant: datetime | str, topic_filter: str = "#") -> DataFrame:
    """The retained messages as of an instant, of the topics that a filter matches.

    NotKnown if the instant lies in a gap, before the log's beginning, or after what the lake has read: `retained_known`
    has the bounds, and "now" is the last instant that is known. The instant is UTC unless it names a zone. A filter
    that starts with a wildcard does not match `$` topics (MQTT 3.1.1, 4.7.2).
    """
    known = retained_known(spark, lake)
    if isinstance(instant, str):
        asked_us = known.until_us if instant.strip() == NOW else instant_us(instant)
        instant = EPOCH + timedelta(microseconds=asked_us)
    check_no_gap(spark, lake, instant)
    known.check(microseconds(instant))
    then = F.expr(as_of_sql(f"timestamp_micros({microseconds(instant)})"))
    history = retained_history(spark, lake)
    return history.where(then & matches(F.col("topic"), topic_filter)).select(*RETAINED.names)


def create_history_view(spark: SparkSession, lake: Lake) -> None:
    """Create the view `retained_history` in this session."""
    retained_history(spark, lake).createOrReplaceTempView(HISTORY_VIEW)
