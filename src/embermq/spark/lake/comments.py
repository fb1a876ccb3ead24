"""What each table and each column of a lake is, in a sentence, for those who find it in a catalog.

Owns: these sentences. They are in the schema of every table that is made now; `queries.registration` adds them to
earlier ones.
"""

from typing import Final

from pyspark.sql.types import StructField, StructType

_TABLES: Final = {
    "messages": "Every accepted PUBLISH, a row each.",
    "retained": "The messages that are retained now, a row for each topic.",
    "retained_closed": "Intervals in which a message was retained, and that have ended.",
    "topic_stats": "How many messages each topic had in each window of time, and how long it was silent.",
    "clients": "Which client connected, subscribed or left, and when.",
    "gaps": "Records of the log that a job has not read, because they were trimmed before, or whose rows were removed.",
}

_COLUMNS: Final = {
    "offset": "The number of the record in the log of the server.",
    "timestamp": "When the server received it, in UTC.",
    "topic": "The topic name.",
    "payload": "The payload, as it was published.",
    "qos": "The quality of service with which it was published: 0, 1 or 2.",
    "day": "The date of the timestamp, in UTC; the table is divided by it.",
    "retain": "Whether it was published to be retained.",
    "dup": "Whether the client said that it had sent it before.",
    "client_id": "The identifier of the client.",
    "expiry": "The Message Expiry Interval in seconds; null without one.",
    "payload_format": "The Payload Format Indicator: 1 is text in UTF-8.",
    "content_type": "The Content Type that the publisher named.",
    "response_topic": "The topic name for an answer.",
    "correlation_data": "What the publisher recognises an answer by.",
    "user_properties": "The User Properties, in their order.",
    "valid_from": "When the message began to be retained, in UTC.",
    "valid_to": "When it was replaced or cleared, in UTC; null while it is retained.",
    "offset_to": "The offset of the record that replaced or cleared it; null while it is retained.",
    "window_start": "The beginning of the window, in UTC.",
    "window_end": "The end of the window, which does not belong to it.",
    "messages": "How many messages the topic had in the window.",
    "bytes": "The bytes of their payloads.",
    "first_seen": "The timestamp of the first of them.",
    "last_seen": "The timestamp of the last of them.",
    "longest_silence_us": "The longest time between two of them, in microseconds.",
    "event": "What happened: connected, disconnected, session_opened, subscribed, and so on.",
    "persistent": "Whether the session outlives the connection.",
    "session_id": "The offset of the record that opened the session; null for one that is not persistent.",
    "topic_filter": "The topic filter of a subscription.",
    "no_local": "Whether the client does not want its own messages.",
    "retain_as_published": "Whether the client wants the RETAIN flag as it was published.",
    "retain_handling": "When retained messages are sent for the subscription: 0, 1 or 2.",
    "session_expiry_s": "How long the session outlives its connection, in seconds.",
    "user_name": "The user name; null without one.",
    "protocol": "The protocol and its version.",
    "address": "Where the client connected from.",
    "reason": "Why the connection ended, or why a payload was rejected.",
    "job": "The job that has not read the records.",
    "from_offset": "The first offset that is missing.",
    "to_offset": "The last offset that is missing.",
    "from_timestamp": "The last instant at which the table is known before the gap; null if not known.",
    "to_timestamp": "The instant from which the table is right again.",
    "why": "Why the records were not read.",
    "noticed": "When the pipeline noticed it.",
    "field": "The field of the payload that does not fit; null if the payload itself does not.",
}
REJECTS_SUFFIX: Final = "_rejects"

_KEYS: Final = ("offset", "timestamp", "topic")
_OTHERWISE: Final = {
    ("clients", "qos"): "The highest quality of service of the subscription: 0, 1 or 2.",
    ("clients", "timestamp"): "When it happened, in UTC.",
}


def table_comment(table: str) -> str:
    """What a table is."""
    if table.endswith(REJECTS_SUFFIX):
        return f"Payloads that do not fit {table.removesuffix(REJECTS_SUFFIX)}, each with the reason."
    return _TABLES.get(table, "Payloads with types, as the settings of the pipeline say.")


def column_comment(table: str, column: str) -> str:
    """What a column of a table is. A typed table has columns of its own beside its keys."""
    if table in _TABLES or table.endswith(REJECTS_SUFFIX) or column in _KEYS:
        return _OTHERWISE.get((table, column)) or _COLUMNS[column]
    return "A value of the payload, or a level of the topic name, as the settings of the table say."


def with_comments(table: str, schema: StructType) -> StructType:
    """A schema with a comment on every column."""
    return StructType(
        [
            StructField(one.name, one.dataType, one.nullable, {"comment": column_comment(table, one.name)})
            for one in schema
        ]
    )
