"""The properties of a PUBLISH as columns (MQTT 5.0, 3.3.2.3).

Owns: reading the property bytes of a record. They passed the server's codec, so a broken one is damage, not a peer.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from embermq.spark.errors import PipelineError
from embermq.spark.source.columns import SOURCE_ARROW
from embermq.store.log.records import Kind

PROPERTY_COLUMNS: Final = ("expiry", "content_type", "response_topic", "correlation_data", "user_properties")

_EXPIRY: Final = 0x02
_TEXTS: Final = {0x03: "content_type", 0x08: "response_topic"}
_CORRELATION_DATA: Final = 0x09
_USER_PROPERTY: Final = 0x26
_FIXED_BYTES: Final = {0x01: 1, _EXPIRY: 4, 0x23: 2}
_SUBSCRIPTION_IDENTIFIER: Final = 0x0B


def property_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The five columns of a batch; all null, and quickly so, where no message has properties."""
    count = batch.num_rows
    ends = np.frombuffer(batch["properties"].buffers()[1], np.int32)[batch["properties"].offset :][: count + 1]
    if ends[0] == ends[-1]:
        return _no_properties(count)
    with_properties = np.flatnonzero((ends[1:] > ends[:-1]) & (np.asarray(batch["kind"]) == Kind.PUBLISH))
    found: dict[str, list[object]] = {name: [None] * count for name in PROPERTY_COLUMNS}
    for row in with_properties.tolist():
        for name, value in read_properties(batch["properties"][row].as_py()):
            if name == "user_properties":
                held = found[name][row]
                found[name][row] = [*held, value] if isinstance(held, list) else [value]
            else:
                found[name][row] = value
    return {name: pa.array(found[name], SOURCE_ARROW.field(name).type) for name in PROPERTY_COLUMNS}


@lru_cache(maxsize=4)
def _no_properties(count: int) -> dict[str, pa.Array]:
    """Nulls, kept: nearly all batches of a reader have the same size."""
    return {name: pa.nulls(count, SOURCE_ARROW.field(name).type) for name in PROPERTY_COLUMNS}


def read_properties(data: bytes) -> Iterator[tuple[str, object]]:
    """The columns' names with their values, in the order of the wire."""
    at = 0
    try:
        while at < len(data):
            identifier, at = _variable_integer(data, at)
            if identifier in _FIXED_BYTES:
                after = at + _FIXED_BYTES[identifier]
                if identifier == _EXPIRY:
                    yield "expiry", int.from_bytes(data[at:after], "big")
                at = after
            elif identifier in _TEXTS:
                value, at = _binary(data, at)
                yield _TEXTS[identifier], value.decode()
            elif identifier == _CORRELATION_DATA:
                value, at = _binary(data, at)
                yield "correlation_data", value
            elif identifier == _USER_PROPERTY:
                name, at = _binary(data, at)
                value, at = _binary(data, at)
                yield "user_properties", {"name": name.decode(), "value": value.decode()}
            elif identifier == _SUBSCRIPTION_IDENTIFIER:
                _, at = _variable_integer(data, at)
            else:
                raise PipelineError(f"a record of the log has the unknown property 0x{identifier:02x}")
    except (IndexError, UnicodeDecodeError):
        raise PipelineError("the properties of a record of the log are cut short or no text") from None


def _variable_integer(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _binary(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    if end > len(data):
        raise IndexError(end)
    return data[at + 2 : end], end
