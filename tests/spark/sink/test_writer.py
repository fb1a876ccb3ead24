"""The sink: rows of a DataFrame become messages of a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from embermq import Broker
from embermq.spark.data_source import EmberDataSource
from embermq.spark.errors import OptionError
from embermq.spark.options import parse_sink_options
from embermq.spark.sink.writer import EmberWriter, Published, check_sink_schema
from embermq.store.log.reader import LogReader
from support.recorded import Recorder


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
