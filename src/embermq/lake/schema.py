"""The tables of a lake: the one definition of their columns, for Arrow, Spark and SQL.

Owns: the name, type and comment of every column; the tables made of them, and for each the columns with statistics and
the one that the age of a row is judged by; how a type is written in Spark's JSON and in the SQL of Spark and DuckDB.
Never: a row. A column means the same in every table that has it, so it is defined once; a typed table has columns of
its own (`typed_tables`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, final

import pyarrow as pa

from embermq.protocol.mqtt.message_fields import MESSAGE_FIELDS

Json = dict[str, Any]

BYTE: Final = pa.int8()
LONG: Final = pa.int64()
DOUBLE: Final = pa.float64()
STRING: Final = pa.string()
BINARY: Final = pa.binary()
BOOLEAN: Final = pa.bool_()
TIMESTAMP: Final = pa.timestamp("us", "UTC")


class Column(NamedTuple):
    """A column, and what it is, in a sentence for those who find it in a catalog."""

    name: str
    type: pa.DataType
    comment: str

    def spark_json(self) -> Json:
        """The field of a schema of Spark; null is allowed."""
        metadata = {"comment": self.comment}
        return {"name": self.name, "type": _spark_json(self.type), "nullable": True, "metadata": metadata}


_COLUMNS: Final = {
    column.name: column
    for column in (
        Column("offset", LONG, "The number of the record in the log of the server."),
        Column("timestamp", TIMESTAMP, "When the server received it, in UTC."),
        Column("kind", STRING, "The kind of the record: publish, retained_removed, subscribed, and so on."),
        Column("topic", STRING, "The topic name."),
        Column("payload", BINARY, "The payload, as it was published."),
        Column("qos", BYTE, "The quality of service with which it was published: 0, 1 or 2."),
        Column("day", pa.date32(), "The date of the timestamp, in UTC; the table is divided by it."),
        Column("retain", BOOLEAN, "Whether it was published to be retained."),
        Column("dup", BOOLEAN, "Whether the client said that it had sent it before."),
        Column("client_id", STRING, "The identifier of the client."),
        Column("expiry", LONG, "The Message Expiry Interval in seconds; null without one."),
        Column("payload_format", BYTE, "The Payload Format Indicator: 1 is text in UTF-8."),
        Column("content_type", STRING, "The Content Type that the publisher named."),
        Column("response_topic", STRING, "The topic name for an answer."),
        Column("correlation_data", BINARY, "What the publisher recognises an answer by."),
        Column(
            "user_properties",
            pa.list_(pa.struct([("name", STRING), ("value", STRING)])),
            "The User Properties, in their order.",
        ),
        Column("flags", BYTE, "The flags of the record, unchanged."),
        Column("valid_from", TIMESTAMP, "When the message began to be retained, in UTC."),
        Column("valid_to", TIMESTAMP, "When it was replaced or cleared, in UTC; null while it is retained."),
        Column("offset_to", LONG, "The offset of the record that replaced or cleared it; null while it is retained."),
        Column("window_start", TIMESTAMP, "The beginning of the window, in UTC."),
        Column("window_end", TIMESTAMP, "The end of the window, which does not belong to it."),
        Column("messages", LONG, "How many messages the topic had in the window."),
        Column("bytes", LONG, "The bytes of their payloads."),
        Column("first_seen", TIMESTAMP, "The timestamp of the first of them."),
        Column("last_seen", TIMESTAMP, "The timestamp of the last of them."),
        Column("longest_silence_us", LONG, "The longest time between two of them, in microseconds."),
        Column("count", LONG, "How many values the topic had in the window."),
        Column("total", DOUBLE, "Their sum."),
        Column("min", DOUBLE, "The least of them."),
        Column("max", DOUBLE, "The greatest of them."),
        Column("avg", DOUBLE, "Their mean."),
        Column("first", DOUBLE, "The earliest of them."),
        Column("last", DOUBLE, "The latest of them."),
        Column("gaps", LONG, "How many silences the window has."),
        Column(
            "silences",
            pa.list_(pa.struct([("since", TIMESTAMP), ("until", TIMESTAMP)])),
            "The parts of the window without a value that are longer than the settings allow, in their order.",
        ),
        Column("event", STRING, "What happened: connected, disconnected, session_opened, subscribed, and so on."),
        Column("persistent", BOOLEAN, "Whether the session outlives the connection."),
        Column(
            "session_id",
            LONG,
            "The number of the session; null for one that is not persistent.",
        ),
        Column("topic_filter", STRING, "The topic filter of a subscription."),
        Column("no_local", BOOLEAN, "Whether the client does not want its own messages."),
        Column("retain_as_published", BOOLEAN, "Whether the client wants the RETAIN flag as it was published."),
        Column("retain_handling", BYTE, "When retained messages are sent for the subscription: 0, 1 or 2."),
        Column("session_expiry_s", LONG, "How long the session outlives its connection, in seconds."),
        Column("user_name", STRING, "The user name; null without one."),
        Column("protocol", STRING, "The protocol and its version."),
        Column("address", STRING, "Where the client connected from."),
        Column("reason", STRING, "Why the connection ended, or why a payload was rejected."),
        Column("job", STRING, "The job that has not read the records."),
        Column("from_offset", LONG, "The first offset that is missing."),
        Column("to_offset", LONG, "The last offset that is missing."),
        Column(
            "from_timestamp",
            TIMESTAMP,
            "The last instant at which the table is known before the gap; null if not known.",
        ),
        Column("to_timestamp", TIMESTAMP, "The instant from which the table is right again."),
        Column("why", STRING, "Why the records were not read."),
        Column("noticed", TIMESTAMP, "When the pipeline noticed it."),
        Column("field", STRING, "The field of the payload that does not fit; null if the payload itself does not."),
        Column("rule", STRING, "The rule of the settings that is broken: min, max, rate_max, not_null or allowed."),
        Column("value", STRING, "The value, as text."),
    )
}


@final
@dataclass(frozen=True)
class Table:
    """A table: its name, what it is, and its columns in their order."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    age_column: str = "timestamp"
    """The column that the age of a row is judged by."""
    has_age: bool = False
    """Whether old rows can be removed by the retention of the lake."""
    divided_by: str | None = None
    """The column with whose values the rows are put into directories."""
    statistics: tuple[str, ...] = ()
    """The columns of which Delta keeps the least and the greatest value; none: Delta's own choice."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    def arrow(self, *names: str) -> pa.Schema:
        """The columns as Arrow has them: all, or some in another order."""
        types = {column.name: column.type for column in self.columns}
        return pa.schema([(name, types[name]) for name in names or self.names])

    def spark_json(self) -> Json:
        """The columns as a schema of Spark, as its JSON."""
        return {"type": "struct", "fields": [column.spark_json() for column in self.columns]}

    def comment_of(self, column: str) -> str:
        """What a column is."""
        return next((one.comment for one in self.columns if one.name == column), VALUE_COMMENT)


def _columns(names: str, **comments: str) -> tuple[Column, ...]:
    """Columns by their names, some with a comment of their own."""
    found = (_COLUMNS[name] for name in names.split())
    return tuple(one._replace(comment=comments.get(one.name, one.comment)) for one in found)


PUBLISHED_COLUMNS: Final = ("client_id", *MESSAGE_FIELDS)
"""What a table of retained messages has of a PUBLISH beside its topic, payload and QoS."""
DAY: Final = "day"
REJECTS_SUFFIX: Final = "_rejects"
VIOLATIONS_SUFFIX: Final = "_violations"
LAST_VALUES_SUFFIX: Final = "_last_values"
BIRTHS_SUFFIX: Final = "_births"
TYPED_COMMENT: Final = "Payloads with types, as the settings of the pipeline say."
VALUE_COMMENT: Final = "A value of the payload, or a level of the topic name, as the settings of the table say."

_RETAINED: Final = "topic payload qos offset valid_from"
_PUBLISHED: Final = " ".join(PUBLISHED_COLUMNS)

LOG: Final = Table(
    "log",
    "The records of the log, a row each.",
    _columns(f"offset timestamp kind topic payload qos retain dup {_PUBLISHED} flags"),
)
"""What the source reads. `flags` is not one of its columns unless a schema asks for it."""
MESSAGES: Final = Table(
    "messages",
    "Every accepted PUBLISH, a row each.",
    _columns(f"offset timestamp topic payload qos retain dup {_PUBLISHED} {DAY}"),
    age_column=DAY,
    has_age=True,
    divided_by=DAY,
    statistics=("offset", "timestamp", "topic"),
)
# Earlier versions did not have who published it and its properties: they are last, where a table gets new columns.
RETAINED: Final = Table(
    "retained",
    "The messages that are retained now, a row for each topic.",
    _columns(f"{_RETAINED} {_PUBLISHED}"),
    statistics=("topic", "offset", "valid_from"),
)
RETAINED_CLOSED: Final = Table(
    "retained_closed",
    "Intervals in which a message was retained, and that have ended.",
    _columns(f"{_RETAINED} valid_to offset_to {_PUBLISHED}"),
    age_column="valid_to",
    has_age=True,
    statistics=("topic", "offset", "valid_from", "valid_to", "offset_to"),
)
TOPIC_STATS: Final = Table(
    "topic_stats",
    "How many messages each topic had in each window of time, and how long it was silent.",
    _columns("topic window_start window_end messages bytes first_seen last_seen longest_silence_us"),
    age_column="window_end",
    has_age=True,
    statistics=("topic", "window_start", "first_seen", "last_seen"),
)
CLIENTS: Final = Table(
    "clients",
    "Which client connected, subscribed or left, and when.",
    _columns(
        "offset timestamp event client_id persistent session_id topic_filter qos no_local retain_as_published "
        "retain_handling session_expiry_s user_name protocol address reason",
        qos="The highest quality of service of the subscription: 0, 1 or 2.",
        timestamp="When it happened, in UTC.",
    ),
    has_age=True,
)
GAPS: Final = Table(
    "gaps",
    "Records of the log that a job has not read, because they were trimmed before, or whose rows were removed.",
    _columns("job from_offset to_offset from_timestamp to_timestamp why noticed"),
)
LOG_ARROW: Final = LOG.arrow()
MESSAGES_ARROW: Final = MESSAGES.arrow(*(name for name in MESSAGES.names if name != DAY))
"""The columns of `messages` that are read from the log."""
REJECTS: Final = Table(REJECTS_SUFFIX, "", _columns("offset timestamp topic payload field reason"))
"""The table of payloads that do not fit a typed table; each has a name of its own."""
ROLLUP: Final = Table(
    "rollup",
    "A value of each topic in each window of time: how often, between which bounds, and when it was silent.",
    _columns(
        "topic window_start window_end count total min max avg first last first_seen last_seen gaps "
        "longest_silence_us silences",
        first_seen="The time of the first of them.",
        last_seen="The time of the last of them.",
        longest_silence_us="The longest of the silences, in microseconds; 0 without one.",
    ),
    age_column="window_end",
    has_age=True,
    statistics=("topic", "window_start", "window_end", "first_seen", "last_seen"),
)
"""The table of a rollup; each has a name of its own."""
VIOLATIONS: Final = Table(
    VIOLATIONS_SUFFIX,
    "",
    _columns("offset timestamp topic field rule value", field="The column of the typed table."),
    has_age=True,
)
"""The table of values that are not as expected; each typed table has one of its own."""
LAST_VALUES: Final = Table(
    LAST_VALUES_SUFFIX,
    "",
    _columns("topic field offset timestamp last", field="The column of the typed table.", last="The value."),
)
"""The newest values of topics, from which changes go on; each typed table has one of its own."""
TYPED_KEYS: Final = _columns("offset timestamp topic")
"""The first columns of a typed table."""

TABLES: Final = {table.name: table for table in (MESSAGES, RETAINED, RETAINED_CLOSED, TOPIC_STATS, CLIENTS, GAPS)}
"""The tables of every lake, in the order in which they are shown."""
HISTORY_VIEW: Final = "retained_history"
KNOWN_VIEW: Final = "retained_known"
"""Between which instants the retained set is known: columns `since` and `until`, one row."""
AS_OF_FUNCTION: Final = "retained_as_of"


def rejects_of(name: str) -> Table:
    """The table of what does not fit a typed table."""
    return replace(
        REJECTS, name=name + REJECTS_SUFFIX, comment=f"Payloads that do not fit {name}, each with the reason."
    )


def violations_of(name: str) -> Table:
    """The table of the values of a typed table that are not as expected."""
    return replace(VIOLATIONS, name=name + VIOLATIONS_SUFFIX, comment=f"Values of {name} that are not as expected.")


def last_values_of(name: str) -> Table:
    """The table of the newest values of the topics of a typed table."""
    return replace(LAST_VALUES, name=name + LAST_VALUES_SUFFIX, comment=f"The newest values of the topics of {name}.")


def births_of(name: str) -> Table:
    """The table of the certificates that a typed table of Sparkplug B needs."""
    columns = _columns("offset timestamp topic payload")
    return Table(name + BIRTHS_SUFFIX, f"The newest certificates of the nodes and devices of {name}.", columns)


def typed_table(name: str, values: Iterable[tuple[str, pa.DataType]]) -> Table:
    """A typed table with these columns beside its keys."""
    return Table(name, TYPED_COMMENT, (*TYPED_KEYS, *(Column(*value, VALUE_COMMENT) for value in values)))


def rollup_table(name: str) -> Table:
    """The table of a rollup."""
    return replace(ROLLUP, name=name)


def definition_of(name: str, columns: Collection[str]) -> Table:
    """The definition of a table that was found in a lake; of a typed table only the keys are known here."""
    if name in TABLES:
        return TABLES[name]
    if {*columns} == {*ROLLUP.names}:
        return rollup_table(name)
    if name.endswith(REJECTS_SUFFIX):
        return rejects_of(name.removesuffix(REJECTS_SUFFIX))
    return typed_table(name, ())


# -- types ------------------------------------------------------------------------------------------------------------


class _Name(NamedTuple):
    """What a type is called."""

    json: str
    spark: str
    duckdb: str


_NAMES: Final = {
    BOOLEAN: _Name("boolean", "boolean", "boolean"),
    BYTE: _Name("byte", "tinyint", "tinyint"),
    pa.int16(): _Name("short", "smallint", "smallint"),
    pa.int32(): _Name("integer", "int", "integer"),
    LONG: _Name("long", "bigint", "bigint"),
    pa.float32(): _Name("float", "float", "float"),
    DOUBLE: _Name("double", "double", "double"),
    STRING: _Name("string", "string", "varchar"),
    BINARY: _Name("binary", "binary", "blob"),
    pa.date32(): _Name("date", "date", "date"),
    TIMESTAMP: _Name("timestamp", "timestamp", "timestamptz"),
}


def spark_sql(kind: pa.DataType) -> str:
    """A type in the SQL of Spark."""
    if pa.types.is_list(kind):
        return f"array<{spark_sql(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_sql(kind.key_type)},{spark_sql(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{spark_sql(field.type)}' for field in kind)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES[kind].spark


def duckdb_sql(kind: pa.DataType) -> str:
    """A type of a column that every lake has, in the SQL of DuckDB."""
    if pa.types.is_list(kind):
        return f"{duckdb_sql(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"struct({', '.join(f'{field.name} {duckdb_sql(field.type)}' for field in kind)})"
    return _NAMES[kind].duckdb


def _spark_json(kind: pa.DataType) -> str | Json:
    """A type in the JSON of Spark."""
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _spark_json(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        key, value = _spark_json(kind.key_type), _spark_json(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_struct(kind):
        return struct_json(kind)
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _NAMES[kind].json


def struct_json(fields: Iterable[pa.Field]) -> Json:
    """Fields as a schema of Spark, as its JSON."""
    found = [
        {"name": one.name, "type": _spark_json(one.type), "nullable": one.nullable, "metadata": {}} for one in fields
    ]
    return {"type": "struct", "fields": found}
