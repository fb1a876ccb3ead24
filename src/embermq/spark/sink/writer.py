"""Rows published to the server: `df.write.format("embermq")` and `df.writeStream.format("embermq")`.

Columns: topic (string), payload (binary or string, null clears with retain), optionally qos and retain, and the
properties of MQTT 5 by the names of the source's columns: expiry, payload_format, content_type, response_topic,
correlation_data, user_properties. One row is one message. Options (see `options`): url, username, password or
passwordFile, caFile, certFile, keyFile, qos and retain for rows without these columns or with null there, orderBy,
packetBytesMax, refusalsPath, window, clientIdPrefix, timeoutSeconds, progressSeconds.

A row at QoS 1 or 2 that the server refuses (no right, a budget, a payload that is not as announced) fails the write,
with its topic and the reason. With `refusalsPath` it does not: refused rows are counted, and written to a file of that
directory for each task, a JSON object a line.

At least once: a task that fails is run again and publishes its rows again. Its connection has the client identifier
of the first attempt, so the server has closed that connection before it accepts the new one. The order is that of the
rows of a partition, or of the column that `orderBy` names; rows of one topic belong in one partition where their order
matters (`df.repartition("topic")`).

Owns: turning rows into messages. Each task has its own connection; no row passes through the driver.
Never: exactly once. A row may be published more than once.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from embermq.spark.errors import bad_option
from embermq.spark.options import SinkOptions
from embermq.spark.sink.publisher import PublishFailed, connect_with_retry, fail
from embermq.spark.sink.refusals import Refusals
from embermq.spark.sink.rows import headers_of, properties_of, topics_of

_NUMBER: Final = "__number"
_HASH_BYTES: Final = 8
_ORDERED_ROWS: Final = 10_000
_COLUMN_TYPES: Final = {
    "topic": (StringType,),
    "payload": (BinaryType, StringType),
    "qos": (IntegralType,),
    "retain": (BooleanType,),
    "expiry": (IntegralType,),
    "payload_format": (IntegralType,),
    "content_type": (StringType,),
    "response_topic": (StringType,),
    "correlation_data": (BinaryType, StringType),
    "user_properties": (ArrayType,),
}
_USER_PROPERTIES: Final = "array<struct<name:string,value:string>>"
_ORDER_TYPES: Final = (IntegralType, TimestampType, DateType)
_EXPECTED: Final = (
    "the columns topic string, payload binary or string, and optionally qos tinyint, retain boolean, expiry bigint,"
    " payload_format tinyint, content_type string, response_topic string, correlation_data binary, and user_properties"
    f" {_USER_PROPERTIES}"
)


@dataclass
class Published(WriterCommitMessage):
    """What one task has published."""

    rows: int
    seconds: float
    topics: bytes = b""
    """With `orderBy`: a hash of eight bytes of each topic, to find one that several tasks have published."""
    refused: dict[str, int] = field(default_factory=dict)
    """How many rows the server has refused, by reason."""


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
        report_refused(self.options, messages)

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
        report_refused(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _print(f"batch {batchId} failed; what was published of it will be published again")


def check_sink_schema(schema: StructType, order_by: str | None = None) -> tuple[str, ...]:
    """The names of the columns; OptionError if they cannot be published."""
    if order_by is not None and (
        order_by not in schema.names or not isinstance(schema[order_by].dataType, _ORDER_TYPES)
    ):
        raise bad_option("orderBy", order_by, "a column of the rows, of whole numbers, instants or dates")
    for column in schema.fields:
        if column.name == order_by and column.name not in _COLUMN_TYPES:
            continue
        if not isinstance(column.dataType, _COLUMN_TYPES.get(column.name, ())):
            raise bad_option("schema", column.simpleString(), _EXPECTED)
        if isinstance(column.dataType, ArrayType) and column.dataType.simpleString() != _USER_PROPERTIES:
            raise bad_option("schema", column.simpleString(), _EXPECTED)
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
    client_id = f"{options.client_id_prefix}-{write_id}-{partition}"
    refusals = Refusals(options.refusals_path, client_id) if options.refusals_path is not None else None
    publisher = connect_with_retry(options, client_id, fail if refusals is None else refusals.add)
    try:
        for batch in batches if options.order_by is None else _in_order(batches, options.order_by):
            if not batch.num_rows:
                continue
            topics = topics_of(batch)
            if options.order_by is not None:
                seen.update(topics)
            payloads = batch["payload"].cast(pa.binary()).to_pylist()
            publisher.publish(headers_of(batch, options), topics, payloads, properties_of(batch))
            rows += batch.num_rows
            now = time.monotonic()
            if options.progress_s and now - reported >= options.progress_s:
                reported = now
                _print(f"partition {partition}: {rows:,} messages, {rows / (now - began):,.0f} a second")
        publisher.finish()
    finally:
        publisher.close()
        if refusals is not None:
            refusals.close()
    hashes = b"".join(blake2b(topic, digest_size=_HASH_BYTES).digest() for topic in seen)
    return Published(rows, time.monotonic() - began, hashes, {} if refusals is None else refusals.counts)


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


def report_refused(options: SinkOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Say how many rows were refused, by reason."""
    counts: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, Published):
            counts.update(message.refused)
    if counts:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
        _print(f"the server refused {counts.total():,} messages ({reasons}); they are in {options.refusals_path}")


def _print(text: str) -> None:
    print(f"embermq sink: {text}", file=sys.stderr, flush=True)
