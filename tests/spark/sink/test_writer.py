"""The sink: rows of a DataFrame become messages of a real server."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from embermq import Broker
from embermq.broker.limits import Limits
from embermq.spark.data_source import EmberDataSource
from embermq.spark.errors import OptionError
from embermq.spark.options import parse_sink_options
from embermq.spark.sink.publisher import PublishFailed
from embermq.spark.sink.writer import EmberWriter, Published, check_sink_schema
from embermq.store.log.reader import LogReader
from embermq.store.rows import Kind
from support.recorded import Recorder

PACKET_BYTES_MAX = Limits().packet_bytes_max
SINK_COLUMNS = StructType().add("topic", "string").add("payload", "string").add("n", "long")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def url(data: Path) -> Iterator[str]:
    with Broker.in_thread(data=data, sys_interval_s=0) as running:
        yield f"mqtt://127.0.0.1:{running.port}"


def retained(data: Path) -> dict[str, tuple[bytes, int]]:
    state: dict[str, tuple[bytes, int]] = {}
    for batch in LogReader(data / "log").batches(1):
        for row in batch.to_pylist():
            if row["kind"] == 1 and row["flags"] & 4:
                state.pop(row["topic"], None)
                if row["payload"]:
                    state[row["topic"]] = (row["payload"], row["flags"] & 3)
    return state


def test_a_frame_of_retained_messages_is_loaded_with_one_line(spark: SparkSession, url: str, data: Path) -> None:
    frame = spark.range(0, 5000, 1, 2).selectExpr("concat('load/', id) as topic", "cast(id as string) as payload")
    frame.write.format("embermq").mode("append").option("url", url).option("retain", "true").save()
    assert retained(data) == {f"load/{number}": (b"%d" % number, 1) for number in range(5000)}
    rows = "('load/1', cast(null as binary), 1, true), ('load/2', binary('new'), 2, true), ('x', binary('y'), 0, false)"
    changes = spark.sql(f"select col1 as topic, col2 as payload, col3 as qos, col4 as retain from values {rows}")
    changes.write.format("embermq").mode("append").option("url", url).save()
    found = retained(data)
    assert len(found) == 4999 and "load/1" not in found and found["load/2"] == (b"new", 2) and "x" not in found


@pytest.mark.newest_spark
def test_a_stream_goes_from_one_log_to_a_server(spark: SparkSession, url: str, data: Path, tmp_path: Path) -> None:
    made = Recorder(tmp_path / "from")
    for number in range(60):
        made.publish(f"s/{number % 8}", b"%d" % number, retain=True)
    made.close()

    def run(checkpoint: str) -> None:
        (
            spark.readStream.format("embermq")
            .schema("topic string, payload binary, qos byte, retain boolean")
            .option("maxRecordsPerTrigger", 25)
            .option("minPartitions", 1)
            .load(str(made.data))
            .writeStream.format("embermq")
            .option("url", url)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run("first")
    expected = {topic: (payload, qos) for topic, (payload, qos, _) in made.retained().items()}
    assert retained(data) == expected
    run("second")  # everything once more, as after a lost checkpoint
    assert retained(data) == expected
    assert LogReader(data / "log").bounds()[1] > 120


@pytest.mark.newest_spark
def test_a_stream_in_the_order_of_a_column(spark: SparkSession, url: str, data: Path, tmp_path: Path) -> None:
    made = Recorder(tmp_path / "from")
    for number in range(900):
        made.publish(f"s/{number * 7 % 40}", b"%d" % number, retain=True)
    made.close()
    rows = (
        spark.readStream.format("embermq")
        .schema("offset long, topic string, payload binary, retain boolean")
        .option("maxRecordsPerTrigger", 500)
        .load(str(made.data))
        .repartition(3)  # mixes the rows
    )

    def run(shuffled: DataFrame, checkpoint: str) -> None:
        (
            shuffled.writeStream.format("embermq")
            .option("url", url)
            .option("orderBy", "offset")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run(rows.repartition(2, "topic"), "ordered")
    assert by_topic(data) == {
        topic: [one[3] for one in made.published if one[2] == topic] for topic in {one[2] for one in made.published}
    }
    with pytest.raises(PySparkException, match="several tasks have published rows of one topic"):
        run(rows, "mixed")


def by_topic(data: Path) -> dict[str, list[bytes]]:
    """All messages of each topic, in the order of the server's log."""
    found: dict[str, list[bytes]] = {}
    for batch in LogReader(data / "log").batches(1):
        for row in batch.to_pylist():
            if row["kind"] == Kind.PUBLISH:
                found.setdefault(row["topic"], []).append(row["payload"])
    return found


def writer(url: str, **options: str) -> EmberWriter:
    return EmberWriter(parse_sink_options({"url": url, "progressSeconds": "0", **options}), ("topic", "payload", "n"))


def some_rows(numbers: list[int | None], topic: str = "a") -> pa.RecordBatch:
    payloads = [str(number) for number in numbers]
    return pa.RecordBatch.from_pydict(
        {"topic": [topic] * len(numbers), "payload": payloads, "n": pa.array(numbers, pa.int64())}
    )


def test_rows_of_a_task_are_published_in_the_order_of_a_column(url: str, data: Path) -> None:
    published = writer(url, orderBy="n").write(iter([some_rows([5, 1]), some_rows([4, 4, 0])]))
    assert isinstance(published, Published) and published.rows == 5
    assert by_topic(data) == {"a": [b"0", b"1", b"4", b"4", b"5"]}
    with pytest.raises(PublishFailed, match="a row has no n, by which the rows are ordered"):
        writer(url, orderBy="n").write(iter([some_rows([5, None])]))
    assert writer(url, orderBy="n").write(iter([])).rows == 0


def test_an_attempt_of_a_task_ends_the_connection_of_the_one_before(url: str, data: Path) -> None:
    made = writer(url, orderBy="n")

    def rows() -> Iterator[pa.RecordBatch]:
        yield some_rows([1])
        made.write(iter([some_rows([1, 2])]))  # Spark has given up on this attempt, and started another one
        yield some_rows([2])

    late = EmberWriter(parse_sink_options({"url": url, "progressSeconds": "0"}), ("topic", "payload"))
    late.write_id = made.write_id
    with pytest.raises(PublishFailed, match=r"Session taken over|closed the connection|broke"):
        late.write(rows())
    assert by_topic(data)["a"][-2:] == [b"1", b"2"]


def test_tasks_that_order_their_rows_do_not_share_a_topic(url: str) -> None:
    made = writer(url, orderBy="n")
    first, second, other = (made.write(iter([some_rows([1], topic)])) for topic in ("a", "a", "b"))
    made.commit([first, other, None])
    with pytest.raises(PublishFailed, match=r"add \.repartition"):
        made.commit([first, second])


@pytest.mark.parametrize(("qos", "payload_bytes_max"), [("0", PACKET_BYTES_MAX - 9), ("1", PACKET_BYTES_MAX - 11)])
def test_a_row_above_the_limit_of_the_server_is_named(url: str, qos: str, payload_bytes_max: int) -> None:
    def row(payload_bytes: int) -> Iterator[pa.RecordBatch]:
        return iter([pa.RecordBatch.from_pydict({"topic": ["a"], "payload": [b"x" * payload_bytes]})])

    assert writer(url, qos=qos).write(row(payload_bytes_max)).rows == 1
    # The server takes no byte more, and has said so, whatever the option allows.
    for packet_bytes_max in (PACKET_BYTES_MAX, 2 * PACKET_BYTES_MAX):
        said = rf"the row of topic 'a' has a payload of {payload_bytes_max + 1} bytes"
        with pytest.raises(PublishFailed, match=said):
            writer(url, qos=qos, packetBytesMax=str(packet_bytes_max)).write(row(payload_bytes_max + 1))


@pytest.mark.parametrize("order_by", ["nosuch", "payload"])
def test_rows_are_ordered_by_numbers_and_instants_only(order_by: str) -> None:
    with pytest.raises(OptionError, match=f"option 'orderBy' is '{order_by}': expected a column of the rows"):
        check_sink_schema(SINK_COLUMNS, order_by)
    assert check_sink_schema(SINK_COLUMNS, "n") == ("topic", "payload", "n")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("select 'a/+' as topic, 'x' as payload", "'a/\\+' is no topic name"),
        ("select '' as topic, 'x' as payload", "'' is no topic name"),
        ("select cast(null as string) as topic, 'x' as payload", "None is no topic name"),
        ("select 'a' as topic, 'x' as payload, 3 as qos", "qos 3 is not 0, 1 or 2"),
    ],
)
def test_rows_that_are_no_messages_fail_with_their_reason(spark: SparkSession, url: str, rows: str, said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        spark.sql(rows).write.format("embermq").mode("append").option("url", url).save()


@pytest.mark.parametrize(
    "columns", ["topic string", "payload binary", "topic string, payload int", "topic string, payload binary, x int"]
)
def test_columns_that_cannot_be_published_are_refused(columns: str, spark: SparkSession) -> None:
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    with pytest.raises(OptionError, match="expected the columns topic string, payload binary"):
        check_sink_schema(schema)


def test_the_driver_says_how_much_was_published(capsys: pytest.CaptureFixture[str]) -> None:
    writer = EmberWriter(parse_sink_options({}), ("topic", "payload"))
    writer.commit([Published(3000, 1.0), Published(2000, 2.0), None])
    assert "5,000 messages published by 2 tasks" in capsys.readouterr().err


def test_overwriting_what_was_published_is_refused() -> None:
    with pytest.raises(OptionError, match="cannot be taken back"):
        EmberDataSource({"url": "mqtt://localhost"}).writer(StructType(), True)
    assert parse_sink_options({}).host == "localhost"
