"""What clients did, as rows: connected, subscribed, left. The columns are those of the table `clients` in the lake.

Owns: the payloads of records that are not messages (docs/log-format.md), as Python reads them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from embermq.lake.schema import CLIENTS
from embermq.store.log.reader import LogReader
from embermq.store.records import (
    Connected,
    Disconnected,
    SessionEnded,
    SessionExpiryChanged,
    SessionOpened,
    SessionResumed,
    Subscribed,
    Unsubscribed,
    WillSet,
    unpack,
)
from embermq.store.rows import Kind, LogRow

_KINDS: Final = frozenset(
    (
        Kind.CONNECTED,
        Kind.DISCONNECTED,
        Kind.SESSION_ENDED,
        Kind.WILL_SET,
        Kind.WILL_CLEARED,
        Kind.SUBSCRIBED,
        Kind.UNSUBSCRIBED,
        Kind.SESSION_OPENED,
        Kind.SESSION_RESUMED,
        Kind.SESSION_EXPIRY_CHANGED,
    )
)
_OF_SESSIONS: Final = (
    Disconnected,
    SessionEnded,
    SessionExpiryChanged,
    SessionOpened,
    SessionResumed,
    Subscribed,
    Unsubscribed,
    WillSet,
)
_COLUMNS: Final = ("offset", "timestamp", "kind", "flags", "topic", "payload", "client_id")


def client_events(log_directory: Path) -> Iterator[pa.RecordBatch]:
    """All events of a log, in order."""
    log = LogReader(log_directory)
    kinds = pa.array(sorted(_KINDS), pa.int8())
    for batch in log.batches(log.bounds()[0], rows=100_000, columns=_COLUMNS):
        kept = batch.filter(pc.is_in(batch["kind"], kinds))
        if kept.num_rows:
            yield pa.RecordBatch.from_pylist([_row(record) for record in kept.to_pylist()], schema=CLIENTS.arrow())


def _row(record: dict[str, Any]) -> dict[str, Any]:
    kind = Kind(record["kind"])
    row = {
        "offset": record["offset"],
        "timestamp": record["timestamp"],
        "event": kind.name.lower(),
        "client_id": record["client_id"],
    }
    topic, client_id = record["topic"].encode(), record["client_id"].encode()
    logged = LogRow(record["offset"], 0, kind, record["flags"] & 0xFF, topic, record["payload"], client_id)
    try:
        event = unpack(logged)
    except ValueError:  # its payload is not what a server writes
        return row
    if isinstance(event, Connected):
        return row | {
            "protocol": event.protocol,
            "address": event.address,
            "user_name": event.user_name or None,
            "persistent": event.persistent,
        }
    if isinstance(event, _OF_SESSIONS) and event.session_id:
        row["session_id"] = event.session_id
    if isinstance(event, Subscribed):
        request = event.request
        row |= {
            "topic_filter": request.topic_filter,
            "qos": request.qos,
            "no_local": request.no_local,
            "retain_as_published": request.retain_as_published,
            "retain_handling": request.retain_handling,
        }
    elif isinstance(event, Unsubscribed):
        row["topic_filter"] = event.topic_filter
    elif isinstance(event, Disconnected):
        row["reason"] = event.reason
    elif isinstance(event, (SessionOpened, SessionResumed, SessionExpiryChanged)):
        row["session_expiry_s"] = event.session_expiry_s
    if isinstance(event, SessionOpened):
        row["user_name"] = event.user_name or None
    return row
