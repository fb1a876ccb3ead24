"""The properties of a PUBLISH as columns (MQTT 5.0, 3.3.2.3).

Owns: which property becomes which column. The bytes passed the server's codec, so a bad one means a damaged record.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from embermq.lake.errors import PipelineError
from embermq.lake.schema import LOG_ARROW
from embermq.protocol.mqtt.message_fields import MESSAGE_FIELDS, message_fields
from embermq.store.rows import Kind

PROPERTY_COLUMNS: Final = MESSAGE_FIELDS
"""The names of the columns: those of the fields."""


def property_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """These columns of a batch; all null, and quickly so, where no message has properties."""
    count = batch.num_rows
    ends = np.frombuffer(batch["properties"].buffers()[1], np.int32)[batch["properties"].offset :][: count + 1]
    if ends[0] == ends[-1]:
        return _no_properties(count)
    with_properties = np.flatnonzero((ends[1:] > ends[:-1]) & (np.asarray(batch["kind"]) == Kind.PUBLISH))
    properties = [b""] * count
    for row in with_properties.tolist():
        properties[row] = batch["properties"][row].as_py()
    return {name: pa.array(values, LOG_ARROW.field(name).type) for name, values in message_columns(properties).items()}


def message_columns(properties: Sequence[bytes]) -> dict[str, list[object]]:
    """These columns for the properties of messages, as bytes; null where a message does not have one."""
    found: dict[str, list[object]] = {name: [None] * len(properties) for name in PROPERTY_COLUMNS}
    for row, data in enumerate(properties):
        for name, value in _values(data) if data else ():
            found[name][row] = value
    return found


@lru_cache(maxsize=4)
def _no_properties(count: int) -> dict[str, pa.Array]:
    """Nulls, kept: nearly all batches of a reader have the same size."""
    return {name: pa.nulls(count, LOG_ARROW.field(name).type) for name in PROPERTY_COLUMNS}


def _values(data: bytes) -> Iterator[tuple[str, object]]:
    """The columns' names with their values."""
    try:
        found = message_fields(data)
    except ValueError as error:
        raise PipelineError(f"the properties of a record of the log are damaged: {error}") from None
    for name, value in found.items():
        if isinstance(value, list):
            yield name, [{"name": key, "value": text} for key, text in value]
        else:
            yield name, value
