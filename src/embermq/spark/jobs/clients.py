"""The job of `clients`: which client connected, subscribed or left, and when.

Owns: the columns of records that are not messages (docs/log-format.md), as expressions that Spark runs natively.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from embermq.lake.delta import applied_offset
from embermq.lake.lake import Lake
from embermq.lake.schema import CLIENTS, spark_sql
from embermq.spark.jobs.job import Batch, Job
from embermq.spark.lake.transactions import append_once
from embermq.store.records import (
    NO_LOCAL_FLAG,
    RETAIN_AS_PUBLISHED_FLAG,
    RETAIN_HANDLING_SHIFT,
    SESSION_EXPIRY,
    SESSION_SEQUENCE,
)
from embermq.store.rows import QOS_MASK

NAME: Final = "clients"

_EXPIRY_AT: Final = 8


def client_events(records: DataFrame) -> DataFrame:
    """Records of the log as rows of `clients`; a column is null where the event does not have it."""
    kind = F.col("kind")
    connected, subscribed = kind == "connected", kind == "subscribed"
    opened = kind == "session_opened"
    with_expiry = opened | (kind == "session_resumed") | (kind == "session_expiry_changed")
    flags = F.col("flags").cast("int")
    session_id = _number(0, 8)
    # protocol, address, user name, "persistent" or "clean", a line each; a user name may have line ends of its own
    lines = F.split(F.col("payload").cast("string"), "\n", -1)
    user_name = F.array_join(F.slice(lines, F.lit(3), F.greatest(F.size(lines) - 3, F.lit(0))), "\n")
    columns = {
        "offset": F.col("offset"),
        "timestamp": F.col("timestamp"),
        "event": kind,
        "client_id": F.col("client_id"),
        "persistent": F.when(connected, F.element_at(lines, -1) == "persistent"),
        # In older logs a session's id is the offset of the record that opened it, and that record itself says 0.
        "session_id": F.when(opened & (session_id == 0), F.col("offset")).when(
            ~connected & (session_id > 0), session_id
        ),
        "topic_filter": F.when(subscribed | (kind == "unsubscribed"), F.col("topic")),
        "qos": F.when(subscribed, flags.bitwiseAND(QOS_MASK)),
        "no_local": F.when(subscribed, flags.bitwiseAND(NO_LOCAL_FLAG) != 0),
        "retain_as_published": F.when(subscribed, flags.bitwiseAND(RETAIN_AS_PUBLISHED_FLAG) != 0),
        "retain_handling": F.when(subscribed, F.shiftright(flags, RETAIN_HANDLING_SHIFT).bitwiseAND(0b11)),
        "session_expiry_s": F.when(with_expiry, _number(_EXPIRY_AT, 4)),
        "user_name": F.nullif(F.when(connected, user_name).when(opened, _text(SESSION_EXPIRY.size)), F.lit("")),
        "protocol": F.when(connected, F.get(lines, 0)),
        "address": F.when(connected, F.get(lines, 1)),
        "reason": F.when(kind == "disconnected", _text(SESSION_SEQUENCE.size)),
    }
    return records.select(*(columns[one.name].cast(spark_sql(one.type)).alias(one.name) for one in CLIENTS.columns))


def _number(at: int, length: int) -> Column:
    """The little-endian number at a position of the payload."""
    digits = F.hex(F.substring("payload", at + 1, length))
    swapped = F.concat(*(F.substring(digits, 2 * byte + 1, 2) for byte in reversed(range(length))))
    # Spark evaluates this for other kinds of records too, whose bytes may be too large a number.
    return F.conv(swapped, 16, 10).try_cast("long")


def _text(at: int) -> Column:
    """The payload from a position on."""
    return F.expr(f"cast(substring(payload, {at + 1}) as string)")


def apply_clients(batch: Batch, lake: Lake) -> None:
    """Append a batch's events."""
    new = batch.rows.where(F.col("offset") > applied_offset(lake, NAME, NAME))
    append_once(client_events(new), lake, NAME, NAME, batch.through, batch.is_small)


CLIENTS_JOB: Final = Job(
    name=NAME,
    tables=(CLIENTS,),
    columns=("offset", "timestamp", "kind", "flags", "topic", "payload", "client_id"),
    kinds=(
        "connected",
        "disconnected",
        "session_opened",
        "session_resumed",
        "session_expiry_changed",
        "session_ended",
        "will_set",
        "will_cleared",
        "subscribed",
        "unsubscribed",
    ),
    apply=apply_clients,
)
