"""What clients did, as rows: connected, subscribed, left. The columns are those of the table `clients` in the lake.

Owns: the payloads of records that are not messages (docs/log-format.md), as Python reads them.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import error as StructError
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from embermq.store.log.reader import LogReader
from embermq.store.log.records import (
    NO_LOCAL_FLAG,
    QOS_MASK,
    RETAIN_AS_PUBLISHED_FLAG,
    RETAIN_HANDLING_SHIFT,
    SESSION,
    SESSION_EXPIRY,
    SESSION_SEQUENCE,
    Kind,
)

CLIENTS_ARROW: Final = pa.schema(
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
_WITH_EXPIRY: Final = frozenset((Kind.SESSION_OPENED, Kind.SESSION_RESUMED, Kind.SESSION_EXPIRY_CHANGED))
_KINDS: Final = frozenset(
    (
        Kind.CONNECTED,
        Kind.DISCONNECTED,
        Kind.SESSION_ENDED,
        Kind.WILL_SET,
        Kind.WILL_CLEARED,
        Kind.SUBSCRIBED,
        Kind.UNSUBSCRIBED,
        *_WITH_EXPIRY,
    )
)
_COLUMNS: Final = ("offset", "timestamp", "kind", "flags", "topic", "payload", "client_id")


def client_events(log_directory: Path) -> Iterator[pa.RecordBatch]:
    """All events of a log, in order."""
    log = LogReader(log_directory)
    kinds = pa.array(sorted(_KINDS), pa.int8())
    for batch in log.batches(log.bounds()[0], rows=100_000, columns=_COLUMNS):
        kept = batch.filter(pc.is_in(batch["kind"], kinds))
        if kept.num_rows:
            yield pa.RecordBatch.from_pylist([_row(record) for record in kept.to_pylist()], schema=CLIENTS_ARROW)


def _row(record: dict[str, Any]) -> dict[str, Any]:
    kind, flags, payload = Kind(record["kind"]), record["flags"] & 0xFF, record["payload"]
    row = {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "event": kind.name.lower(),
        "client_id": record["client_id"],
    }
    if kind is Kind.CONNECTED:
        return row | _connected(payload)
    session_id = _number(payload)
    if session_id:
        row["session_id"] = session_id
    elif kind is Kind.SESSION_OPENED:
        row["session_id"] = record["offset"]
    if kind in (Kind.SUBSCRIBED, Kind.UNSUBSCRIBED):
        row["topic_filter"] = record["topic"]
    if kind is Kind.SUBSCRIBED:
        row |= {
            "qos": flags & QOS_MASK,
            "no_local": bool(flags & NO_LOCAL_FLAG),
            "retain_as_published": bool(flags & RETAIN_AS_PUBLISHED_FLAG),
            "retain_handling": flags >> RETAIN_HANDLING_SHIFT & 0b11,
        }
    if kind in _WITH_EXPIRY and len(payload) >= SESSION_EXPIRY.size:
        row["session_expiry_s"] = SESSION_EXPIRY.unpack_from(payload)[1]
    if kind is Kind.SESSION_OPENED:
        row["user_name"] = _text(payload[SESSION_EXPIRY.size :]) or None
    if kind is Kind.DISCONNECTED:
        row["reason"] = _text(payload[SESSION_SEQUENCE.size :])
    return row


def _connected(payload: bytes) -> dict[str, Any]:
    """Protocol, address, user name, kind of session: a line each, but a user name may have several lines."""
    lines = _text(payload).split("\n")
    return {
        "protocol": lines[0],
        "address": lines[1] if len(lines) > 1 else None,
        "user_name": "\n".join(lines[2:-1]) or None,
        "persistent": lines[-1] == "persistent",
    }


def _number(payload: bytes) -> int:
    try:
        found: int = SESSION.unpack_from(payload)[0]
    except StructError:
        return 0
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
