"""The properties of a PUBLISH as columns (MQTT 5.0, 3.3.2.3).

Owns: which property becomes which column. The bytes passed the server's codec, so a bad one means a damaged record.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.fields import Fields
from embermq.protocol.mqtt.properties import EITHER, read_properties
from embermq.protocol.packets import PUBLISH
from embermq.spark.errors import PipelineError
from embermq.spark.source.columns import SOURCE_ARROW
from embermq.store.log.records import Kind

PROPERTY_COLUMNS: Final = ("expiry", "content_type", "response_topic", "correlation_data", "user_properties")

# Property name -> column. The other properties of a PUBLISH have no column.
_COLUMN_OF: Final = {
    "message_expiry_interval": "expiry",
    "content_type": "content_type",
    "response_topic": "response_topic",
    "correlation_data": "correlation_data",
    "user_property": "user_properties",
}


def property_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The five columns of a batch; all null, and quickly so, where no message has properties."""
    count = batch.num_rows
    ends = np.frombuffer(batch["properties"].buffers()[1], np.int32)[batch["properties"].offset :][: count + 1]
    if ends[0] == ends[-1]:
        return _no_properties(count)
    with_properties = np.flatnonzero((ends[1:] > ends[:-1]) & (np.asarray(batch["kind"]) == Kind.PUBLISH))
    found: dict[str, list[object]] = {name: [None] * count for name in PROPERTY_COLUMNS}
    for row in with_properties.tolist():
        for name, value in _values(batch["properties"][row].as_py()):
            if name == "user_properties":
                before = found[name][row]
                found[name][row] = [*before, value] if isinstance(before, list) else [value]
            else:
                found[name][row] = value
    return {name: pa.array(found[name], SOURCE_ARROW.field(name).type) for name in PROPERTY_COLUMNS}


@lru_cache(maxsize=4)
def _no_properties(count: int) -> dict[str, pa.Array]:
    """Nulls, kept: nearly all batches of a reader have the same size."""
    return {name: pa.nulls(count, SOURCE_ARROW.field(name).type) for name in PROPERTY_COLUMNS}


def _values(data: bytes) -> Iterator[tuple[str, object]]:
    """The columns' names with their values, in the order of the wire."""
    try:
        found = read_properties(Fields(data, 0, len(data)), PUBLISH, EITHER)
    except PeerError as error:
        raise PipelineError(f"the properties of a record of the log are damaged: {error.detail}") from None
    for name, value in found:
        column = _COLUMN_OF.get(name)
        if column == "user_properties" and isinstance(value, tuple):
            yield column, {"name": value[0], "value": value[1]}
        elif column is not None:
            yield column, value
