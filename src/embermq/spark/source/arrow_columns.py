"""The columns of a record as Arrow sees them. Importing this module imports no Spark."""

from typing import Final

import pyarrow as pa

from embermq.protocol.message_fields import MESSAGE_FIELDS

SOURCE_ARROW: Final = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int8()),
        ("retain", pa.bool_()),
        ("dup", pa.bool_()),
        ("client_id", pa.string()),
        ("expiry", pa.int64()),
        ("payload_format", pa.int8()),
        ("content_type", pa.string()),
        ("response_topic", pa.string()),
        ("correlation_data", pa.binary()),
        ("user_properties", pa.list_(pa.struct([("name", pa.string()), ("value", pa.string())]))),
        ("flags", pa.int8()),
    ]
)
MESSAGES_ARROW: Final = pa.schema([field for field in SOURCE_ARROW if field.name not in ("kind", "flags")])
"""The columns of the table `messages`: every accepted PUBLISH."""

PUBLISHED_COLUMNS: Final = ("client_id", *MESSAGE_FIELDS)
"""What a table of retained messages has of a PUBLISH beside its topic, payload and QoS."""
