"""Records and segments of the log as text: aligned columns for people, JSON lines for programs."""

from base64 import b64encode
from collections.abc import Sequence
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, final

from embermq.commands.output import (
    Column,
    Size,
    counted,
    duration_text,
    fitted,
    heading,
    json_line,
    print_table,
    printable,
    printable_bytes,
    size_text,
    table_line,
    text_or_base64,
)
from embermq.commands.text.property_text import properties_object, properties_text
from embermq.errors import ConfigError
from embermq.instants import utc_seconds_text, utc_text
from embermq.protocol.topics import matches
from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_PACKET, SESSION_POSITION, SESSION_SEQUENCE, WILL
from embermq.store.rows import DUP_FLAG, QOS_MASK, RETAIN_FLAG, Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from embermq.store.log.checkpoint import Checkpoint
    from embermq.store.segment import Segment

MESSAGES: Final = frozenset({Kind.PUBLISH, Kind.RETAINED_COPY})
WITH_PROPERTIES: Final = MESSAGES | {Kind.WILL_SET}
# What the payload of the other kinds begins with, and the name of the text after it.
PAYLOADS: Final = {
    Kind.DISCONNECTED: (SESSION_SEQUENCE, ("session_id", "sequence"), "reason"),
    Kind.SESSION_OPENED: (SESSION_EXPIRY, ("session_id", "session_expiry_s"), "user_name"),
    Kind.SESSION_RESUMED: (SESSION_EXPIRY, ("session_id", "session_expiry_s"), ""),
    Kind.SESSION_EXPIRY_CHANGED: (SESSION_EXPIRY, ("session_id", "session_expiry_s"), ""),
    Kind.SESSION_ENDED: (SESSION, ("session_id",), ""),
    Kind.SUBSCRIBED: (SESSION, ("session_id",), ""),
    Kind.UNSUBSCRIBED: (SESSION, ("session_id",), ""),
    Kind.QUEUED: (SESSION_SEQUENCE, ("session_id", "sequence"), ""),
    Kind.RELEASED: (SESSION_SEQUENCE, ("session_id", "sequence"), ""),
    Kind.ACKNOWLEDGED: (SESSION_SEQUENCE, ("session_id", "sequence"), ""),
    Kind.RECEIVED: (SESSION_PACKET, ("session_id", "packet_id"), ""),
    Kind.PUBREL: (SESSION_PACKET, ("session_id", "packet_id"), ""),
    Kind.POSITION: (SESSION_POSITION, ("session_id", "before_offset", "qos", "done"), "after_topic_name"),
    Kind.SHARED_QUEUE_ENDED: (SESSION, ("queue_id",), ""),
}
PREVIEW_CHARACTERS: Final = 60
FITTED_ROWS: Final = 200
TOPIC_WIDTH_MAX: Final = 40
"""The topics' column is as wide as the first rows need, up to this."""
COLUMNS: Final = (
    Column("offset", 12, right=True),
    Column("time (UTC)", len("2026-01-31T14:03:07.250000Z")),
    Column("kind", 16),
    Column("QoS", 4),
    Column("client", 20),
    Column("topic"),
    Column("payload"),
)


def kind_numbers(names: list[str]) -> list[int]:
    """The kinds with these names; `-` equals `_`, and case does not matter."""
    numbers = []
    for name in names:
        try:
            numbers.append(int(Kind[name.upper().replace("-", "_")]))
        except KeyError:
            known = ", ".join(shown_kind(kind) for kind in Kind)
            raise ConfigError(f"--kind {name}: expected one of {known}") from None
    return numbers


def shown_kind(number: int) -> str:
    """The name of a kind; its number if a newer version of the server has added it."""
    return Kind(number).name.lower().replace("_", "-") if number in Kind.__members__.values() else str(number)


@final
class Lines:
    """Chooses records and prints them."""

    __slots__ = ("_columns", "_topic_filter", "_kinds", "_json", "_headed")

    def __init__(self, topic_filter: str | None, kinds: list[int], json: bool) -> None:
        self._topic_filter: Final = topic_filter
        self._kinds: Final = kinds
        self._json: Final = json
        self._headed = json
        self._columns: Sequence[Column] = COLUMNS

    @property
    def chooses(self) -> bool:
        """Whether some records are left out."""
        return self._topic_filter is not None or bool(self._kinds)

    def chosen(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """The records of a batch that are to be shown."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._kinds:
            batch = batch.filter(pc.is_in(batch.column("kind"), pa.array(self._kinds, pa.int8())))
        if self._topic_filter is not None:
            topics = pc.unique(batch.column("topic")).to_pylist()
            matching = [topic for topic in topics if topic and matches(self._topic_filter, topic)]
            batch = batch.filter(pc.is_in(batch.column("topic"), pa.array(matching, pa.string())))
        return batch

    def print(self, batch: "pa.RecordBatch") -> None:
        """Print the records of a batch."""
        if not self._headed:
            self._headed = True
            topics = map(printable, batch.column("topic").to_pylist()[:FITTED_ROWS])
            self._columns = fitted(COLUMNS, "topic", topics, TOPIC_WIDTH_MAX)
            print(heading(self._columns))
        batch = batch.set_column(1, "timestamp", batch.column("timestamp").cast("int64"))
        for row in batch.to_pylist():
            print(json_line(as_object(row)) if self._json else as_line(row, self._columns))
        # With --follow, a line must be seen at once.
        print(end="", flush=True)


def as_object(row: dict[str, Any]) -> dict[str, Any]:
    """A record as a JSON object: bytes as text if they are UTF-8, otherwise as base64."""
    kind, flags = row["kind"] & 0xFF, row["flags"] & 0xFF
    shown: dict[str, Any] = {
        "offset": row["offset"],
        "timestamp": utc_text(row["timestamp"]),
        "kind": shown_kind(kind),
        "topic": row["topic"],
        "client_id": row["client_id"],
    }
    if kind in MESSAGES:
        shown |= {"qos": flags & QOS_MASK, "retain": bool(flags & RETAIN_FLAG), "dup": bool(flags & DUP_FLAG)}
        shown |= text_or_base64("payload", row["payload"])
    else:
        shown |= {"flags": flags} | details(kind, row["payload"])
    if kind in WITH_PROPERTIES:
        shown |= properties_object(row["properties"])
    elif row["properties"]:
        shown["properties_base64"] = b64encode(row["properties"]).decode()
    return shown


def as_line(row: dict[str, Any], columns: Sequence[Column] = COLUMNS) -> str:
    """A record as one line, without control characters that a client could send to the terminal."""
    kind, flags = row["kind"] & 0xFF, row["flags"] & 0xFF
    if kind in MESSAGES:
        quality = f"{flags & QOS_MASK}{' r' if flags & RETAIN_FLAG else ''}"
        payload = printable_bytes(row["payload"])
        if len(payload) > PREVIEW_CHARACTERS:
            payload = f"{payload[:PREVIEW_CHARACTERS]}… ({size_text(len(row['payload']))})"
    else:
        quality = ""
        payload = " ".join(f"{name}={printable(str(value))}" for name, value in details(kind, row["payload"]).items())
    properties = properties_text(row["properties"]) if kind in WITH_PROPERTIES else ""
    if properties:
        payload = f"{payload}  {printable(properties)}"
    time, client, topic = utc_text(row["timestamp"]), printable(row["client_id"]), printable(row["topic"])
    return table_line(columns, (str(row["offset"]), time, shown_kind(kind), quality, client, topic, payload))


def details(kind: int, payload: bytes) -> dict[str, Any]:
    """The fields in the payload of a record that is not a message."""
    if kind == Kind.CONNECTED:
        return _connected(payload)
    if kind == Kind.RETAINED_REMOVED:
        return text_or_base64("text", payload)
    if kind == Kind.WILL_SET:
        return _will(payload)
    if kind not in PAYLOADS:
        return text_or_base64("payload", payload)
    layout, names, text_name = PAYLOADS[Kind(kind)]
    try:
        found: dict[str, Any] = dict(zip(names, layout.unpack_from(payload), strict=True))
    except StructError:
        return text_or_base64("payload", payload)
    rest = payload[layout.size :]
    if kind == Kind.QUEUED:
        found["messages"] = len(rest) // 8
    elif text_name:
        found |= text_or_base64(text_name, rest)
    return found


def _connected(payload: bytes) -> dict[str, Any]:
    """Protocol, address, user name, kind of session: a line each, but a user name may have several lines."""
    try:
        protocol, address, *user_name, session = payload.decode().split("\n")
    except ValueError:  # not UTF-8, or fewer lines
        return text_or_base64("text", payload)
    return {
        "protocol": protocol,
        "address": address,
        "user_name": "\n".join(user_name),
        "persistent": session == "persistent",
    }


def _will(payload: bytes) -> dict[str, Any]:
    try:
        session_id, delay_s, user_name_bytes = WILL.unpack_from(payload)
    except StructError:
        return text_or_base64("payload", payload)
    message_at = WILL.size + user_name_bytes
    found = {"session_id": session_id, "delay_s": delay_s}
    return (
        found
        | text_or_base64("user_name", payload[WILL.size : message_at])
        | text_or_base64("payload", payload[message_at:])
    )


def print_stat(segments: list["Segment"], checkpoints: list["Checkpoint"], as_json: bool) -> None:
    """Segments as a table with totals, then the checkpoints; or one JSON object each."""
    if as_json:
        for info in segments:
            print(
                json_line(
                    {
                        "file": info.path.name,
                        "first_offset": info.first_offset,
                        "next_offset": info.next_offset,
                        "blocks": info.blocks,
                        "bytes": info.size_bytes,
                        "first_timestamp": utc_text(info.first_timestamp_us) if info.blocks else None,
                        "last_timestamp": utc_text(info.last_timestamp_us) if info.blocks else None,
                    }
                )
            )
        for found in checkpoints:
            facts = {"file": found.path.name, "checkpoint_of": found.offset, "bytes": found.size_bytes}
            print(json_line({**facts, "timestamp": utc_text(found.timestamp_us)}))
        return
    rows = [
        [
            info.first_offset,
            info.next_offset - info.first_offset,
            info.blocks,
            Size(info.size_bytes),
            utc_seconds_text(info.first_timestamp_us) if info.blocks else None,
            duration_text((info.last_timestamp_us - info.first_timestamp_us) / 1e6) if info.blocks else None,
        ]
        for info in segments
    ]
    totals = [
        counted(len(segments), "segment"),
        sum(info.next_offset - info.first_offset for info in segments),
        sum(info.blocks for info in segments),
        Size(sum(info.size_bytes for info in segments)),
        "",
        "",
    ]
    print_table(["first offset", "records", "blocks", "size", "from (UTC)", "spans"], rows, totals)
    for found in checkpoints:
        print(
            f"{found.path.name}: the checkpoint of offset {found.offset}, {size_text(found.size_bytes)},"
            f" {utc_seconds_text(found.timestamp_us)}"
        )
