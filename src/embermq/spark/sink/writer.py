"""Rows published to the server: `df.write.format("embermq")` and `df.writeStream.format("embermq")`.

Columns: topic (string), payload (binary or string, null clears with retain), optionally qos and retain; one row is
one message. Options (see `options`): url, username, password or passwordFile, caFile, certFile, keyFile, qos and
retain for rows without these columns or with null there, orderBy, packetBytesMax, window, clientIdPrefix,
timeoutSeconds, progressSeconds.

At least once: a task that fails is run again and publishes its rows again. Its connection has the client identifier
of the first attempt, so the server has closed that connection before it accepts the new one. The order is that of the
rows of a partition, or of the column that `orderBy` names; rows of one topic belong in one partition where their order
matters (`df.repartition("topic")`).

Owns: turning rows into messages. Each task has its own connection; no row passes through the driver.
Never: exactly once. A row may be published more than once.
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, BooleanType, DateType, IntegralType, StringType, StructType, TimestampType

from embermq.protocol.topics import TOPIC_BYTES_MAX
from embermq.spark.errors import bad_option
from embermq.spark.options import SinkOptions
from embermq.spark.sink.publisher import PublishFailed, connect_with_retry

_PUBLISH: Final = 0x30
_NUMBER: Final = "__number"
_HASH_BYTES: Final = 8
_ORDERED_ROWS: Final = 10_000
_COLUMN_TYPES: Final = {
    "topic": (StringType,),
    "payload": (BinaryType, StringType),
    "qos": (IntegralType,),
    "retain": (BooleanType,),
}
_ORDER_TYPES: Final = (IntegralType, TimestampType, DateType)
_EXPECTED: Final = "the columns topic string, payload binary or string, and optionally qos tinyint and retain boolean"


@dataclass
class Published(WriterCommitMessage):
    """What one task has published."""

    rows: int
    seconds: float
    topics: bytes = b""
    """With `orderBy`: a hash of eight bytes of each topic, to find one that several tasks have published."""


class EmberWriter(DataSourceArrowWriter):
    """A batch of rows, each partition over its own connection."""

    def __init__(self, options: SinkOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.write_id = uuid4().hex[:12]  # the same in every attempt of a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return publish_rows(self.options, iterator, self.write_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        check_order(messages)
        if self.options.progress_s:
            done = [message for message in messages if isinstance(message, Published)]
            _print(f"{sum(message.rows for message in done):,} messages published by {len(done)} tasks")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _print("the write failed; what was published before stays published")


class EmberStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream. A batch that is replayed is published again and leaves the same retained messages."""

    def __init__(self, options: SinkOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self.write_id = uuid4().hex[:12]  # the same in every attempt of a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        return publish_rows(self.options, iterator, self.write_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        check_order(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _print(f"batch {batchId} failed; what was published of it will be published again")


def check_sink_schema(schema: StructType, order_by: str | None = None) -> tuple[str, ...]:
    """The names of the columns; OptionError if they cannot be published."""
    if order_by is not None and (
        order_by not in schema.names or not isinstance(schema[order_by].dataType, _ORDER_TYPES)
    ):
        raise bad_option("orderBy", order_by, "a column of the rows, of whole numbers, instants or dates")
    for field in schema.fields:
        if field.name == order_by and field.name not in _COLUMN_TYPES:
            continue
        if not isinstance(field.dataType, _COLUMN_TYPES.get(field.name, ())):
            raise bad_option("schema", field.simpleString(), _EXPECTED)
    if "topic" not in schema.names or "payload" not in schema.names:
        raise bad_option("schema", schema.simpleString(), _EXPECTED)
    return tuple(schema.names)


def publish_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch], write_id: str) -> Published:
    """Publish every row and wait until the server has acknowledged them all."""
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    began = reported = time.monotonic()
    rows = 0
    seen: set[bytes] = set()
    publisher = connect_with_retry(options, f"{options.client_id_prefix}-{write_id}-{partition}")
    try:
        for batch in batches if options.order_by is None else _in_order(batches, options.order_by):
            if not batch.num_rows:
                continue
            topics = _topics(batch)
            if options.order_by is not None:
                seen.update(topics)
            payloads = batch["payload"].cast(pa.binary()).to_pylist()
            publisher.publish(_headers(batch, options), topics, payloads)
            rows += batch.num_rows
            now = time.monotonic()
            if options.progress_s and now - reported >= options.progress_s:
                reported = now
                _print(f"partition {partition}: {rows:,} messages, {rows / (now - began):,.0f} a second")
        publisher.finish()
    finally:
        publisher.close()
    hashes = b"".join(blake2b(topic, digest_size=_HASH_BYTES).digest() for topic in seen)
    return Published(rows, time.monotonic() - began, hashes)


def _in_order(batches: Iterator[pa.RecordBatch], order_by: str) -> Iterator[pa.RecordBatch]:
    """All rows of a partition by a column; rows with the same value stay in their order."""
    taken = [batch for batch in batches if batch.num_rows]
    if not taken:
        return iter(())
    rows = pa.Table.from_batches(taken)
    if rows[order_by].null_count:
        raise PublishFailed(f"a row has no {order_by}, by which the rows are ordered")
    numbered = rows.append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
    ordered = numbered.sort_by([(order_by, "ascending"), (_NUMBER, "ascending")])
    return iter(ordered.combine_chunks().to_batches(max_chunksize=_ORDERED_ROWS))


def check_order(messages: list[WriterCommitMessage | None]) -> None:
    """PublishFailed if tasks that order their rows have published rows of the same topic."""
    hashes = np.frombuffer(b"".join(one.topics for one in messages if isinstance(one, Published)), np.uint64)
    if len(np.unique(hashes)) < len(hashes):
        raise PublishFailed(
            'several tasks have published rows of one topic, so their order is not known: add .repartition("topic")'
        )


def _topics(batch: pa.RecordBatch) -> list[bytes]:
    """The topic names as bytes; PublishFailed names the first that is not valid (MQTT 3.1.1, 4.7.3)."""
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


def _headers(batch: pa.RecordBatch, options: SinkOptions) -> list[int]:
    """The first byte of each PUBLISH (MQTT 3.1.1, 3.3.1)."""
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


def _print(text: str) -> None:
    print(f"embermq sink: {text}", file=sys.stderr, flush=True)
