"""The rows of a batch as parts of PUBLISH packets.

Owns: which column becomes what, and the sentence about a row that MQTT cannot express.
Never: a socket, the order of rows.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embermq.protocol.mqtt.message_fields import MESSAGE_FIELDS, USER_PROPERTIES, message_properties
from embermq.protocol.topics import TOPIC_BYTES_MAX
from embermq.spark.options import SinkOptions
from embermq.spark.sink.publisher import PublishFailed

_PUBLISH: Final = 0x30


def topics_of(batch: pa.RecordBatch) -> list[bytes]:
    """The topic names as bytes; PublishFailed names the first that is not valid (MQTT 5.0, 4.7.3)."""
    names = pc.fill_null(batch["topic"], "")
    encoded = names.cast(pa.binary())
    size = pc.binary_length(encoded)
    bad = pc.or_(
        pc.match_substring_regex(names, "[+#\\x00]"), pc.or_(pc.equal(size, 0), pc.greater(size, TOPIC_BYTES_MAX))
    )
    if pc.any(bad).as_py():
        culprit = batch["topic"][pc.index(bad, True).as_py()].as_py()
        raise PublishFailed(f"{culprit!r:.200} is no topic name: it is empty, too long, or has a wildcard or U+0000")
    return list(encoded.to_pylist())


def headers_of(batch: pa.RecordBatch, options: SinkOptions) -> list[int]:
    """The first byte of each PUBLISH (MQTT 5.0, 3.3.1)."""
    count = batch.num_rows
    qos = np.full(count, options.qos, np.int64)
    retain = np.full(count, options.retain, np.bool_)
    names = batch.schema.names
    if "qos" in names:
        qos = np.asarray(pc.fill_null(batch["qos"].cast(pa.int64()), options.qos))
        if ((qos < 0) | (qos > 2)).any():
            raise PublishFailed(f"qos {qos[(qos < 0) | (qos > 2)][0]} is not 0, 1 or 2")
    if "retain" in names:
        retain = np.asarray(pc.fill_null(batch["retain"], options.retain).to_numpy(zero_copy_only=False), np.bool_)
    return [int(header) for header in (_PUBLISH | qos << 1 | retain).tolist()]


def properties_of(batch: pa.RecordBatch) -> list[bytes] | None:
    """The properties of each row; None if the rows have no such columns (MQTT 5.0, 3.3.2.3)."""
    names = [name for name in MESSAGE_FIELDS if name in batch.schema.names]
    if not names:
        return None
    columns = [batch[name].to_pylist() for name in names]
    found: list[bytes] = []
    for row, values in enumerate(zip(*columns, strict=True)):
        fields = {name: _value(name, value) for name, value in zip(names, values, strict=True) if value is not None}
        try:
            found.append(message_properties(fields) if fields else b"")
        except ValueError as error:
            raise PublishFailed(f"the row of topic {batch['topic'][row].as_py()!r:.200}: {error}") from None
    return found


def _value(name: str, value: Any) -> Any:
    if name == USER_PROPERTIES:
        return [(pair["name"] or "", pair["value"] or "") for pair in value if pair is not None]
    if name == "correlation_data" and isinstance(value, str):
        return value.encode()
    return value
