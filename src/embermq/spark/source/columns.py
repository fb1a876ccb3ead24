"""The columns of a record as Spark sees them; `embermq.lake.schema` defines them.

Owns: which columns the source has by default, and which of them are never null.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import StructType

from embermq.lake.schema import LOG, struct_json
from embermq.store.rows import Kind

SOURCE_COLUMNS: Final = tuple(name for name in LOG.names if name != "flags")
"""The default columns. `flags` is not one of them; a schema can ask for it."""

_NEVER_NULL: Final = frozenset(("offset", "timestamp"))
_NEVER_NULL_IN_A_PUBLISH: Final = _NEVER_NULL | {"topic", "payload", "qos", "retain", "dup", "client_id"}


def source_schema(kinds: Sequence[int] = (), columns: Sequence[str] = SOURCE_COLUMNS) -> StructType:
    """Columns of the source when only these kinds of records are read; no kinds means all kinds.

    Columns that are never null are marked: Spark tests every value of the others for null.
    """
    never_null = _NEVER_NULL_IN_A_PUBLISH if tuple(kinds) == (Kind.PUBLISH,) else _NEVER_NULL
    fields = LOG.arrow(*columns)
    return StructType.fromJson(struct_json(field.with_nullable(field.name not in never_null) for field in fields))


SOURCE_SCHEMA: Final = StructType.fromJson(struct_json(LOG.arrow(*SOURCE_COLUMNS)))
"""The log as rows. `expiry` is in seconds, and `payload_format` is 1 for text (MQTT 5.0, 3.3.2.3).

A reader may be given a part of these columns as its schema.
"""
