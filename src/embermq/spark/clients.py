"""`clients`: who connected, subscribed and left, and when, from the records that are not messages.

Owns: reading the payloads of those records as columns.
"""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from embermq.spark.applied import append_once, applied_offset
from embermq.spark.tables import CLIENTS_SCHEMA, Lake
from embermq.store.records import (
    NO_LOCAL_FLAG,
    QOS_MASK,
    RETAIN_AS_PUBLISHED_FLAG,
    RETAIN_HANDLING_SHIFT,
    SESSION,
    SESSION_EXPIRY,
    SESSION_SEQUENCE,
    Kind,
)

JOB: Final = "clients"
COLUMNS: Final = ("offset", "timestamp", "kind", "flags", "topic", "payload", "client_id")
KINDS: Final = (
    "connected",
    "disconnected",
    "session_opened",
    "session_resumed",
    "session_ended",
    "subscribed",
    "unsubscribed",
)

_NAMES: Final = {name: Kind[name.upper()] for name in KINDS}
_ARROW: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("event", pa.string()),
        ("client_id", pa.string()),
        ("persistent", pa.bool_()),
        ("session_id", pa.int64()),
        ("topic_filter", pa.string()),
        ("qos", pa.int8()),
        ("no_local", pa.bool_()),
        ("retain_as_published", pa.bool_()),
        ("retain_handling", pa.int8()),
        ("session_expiry_s", pa.int64()),
        ("user_name", pa.string()),
        ("protocol", pa.string()),
        ("address", pa.string()),
        ("reason", pa.string()),
    ]
)


def event_fields(kind: Kind, offset: int, flags: int, topic: str, payload: bytes) -> dict[str, Any]:
    """What a record says beside its time and client."""
    if kind == Kind.CONNECTED:
        protocol, address, rest = payload.decode().split("\n", 2)
        name, _, kept = rest.rpartition("\n")
        return {
            "protocol": protocol,
            "address": address,
            "user_name": name or None,
            "persistent": kept == "persistent",
        }
    if kind == Kind.DISCONNECTED:
        session_id, _ = SESSION_SEQUENCE.unpack_from(payload)
        return {"session_id": session_id or None, "reason": payload[SESSION_SEQUENCE.size :].decode()}
    if kind in (Kind.SESSION_OPENED, Kind.SESSION_RESUMED):
        session_id, expiry_s = SESSION_EXPIRY.unpack_from(payload)
        user_name = payload[SESSION_EXPIRY.size :].decode() or None
        return {"session_id": session_id or offset, "session_expiry_s": expiry_s, "user_name": user_name}
    (session_id,) = SESSION.unpack_from(payload)
    if kind == Kind.SESSION_ENDED:
        return {"session_id": session_id}
    fields: dict[str, Any] = {"session_id": session_id or None, "topic_filter": topic}
    if kind == Kind.SUBSCRIBED:
        fields |= {
            "qos": flags & QOS_MASK,
            "no_local": bool(flags & NO_LOCAL_FLAG),
            "retain_as_published": bool(flags & RETAIN_AS_PUBLISHED_FLAG),
            "retain_handling": flags >> RETAIN_HANDLING_SHIFT & 0b11,
        }
    return fields


def client_events(records: DataFrame) -> DataFrame:
    """Records of the log as rows of `clients`."""
    return records.select(*COLUMNS).mapInArrow(_read_events, CLIENTS_SCHEMA)


def _read_events(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [
            {
                "offset": row["offset"],
                "timestamp": row["timestamp"],
                "event": row["kind"],
                "client_id": row["client_id"],
                **event_fields(_NAMES[row["kind"]], row["offset"], row["flags"] & 0xFF, row["topic"], row["payload"]),
            }
            for row in batch.to_pylist()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def apply_clients(batch: DataFrame, lake: Lake) -> None:
    """Append a batch's events."""
    path = lake.table(JOB)
    new = batch.where(F.col("offset") > applied_offset(batch.sparkSession, path, JOB))
    last = new.agg(F.max("offset")).collect()[0][0]
    if last is not None:
        append_once(client_events(new), path, JOB, last)
