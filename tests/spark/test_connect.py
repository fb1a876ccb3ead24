"""Over Spark Connect: a server in a process of its own, and clients that have no Java."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.http.options import HttpOptions
from embermq.spark.jobs.catalog import JobSettings, all_jobs
from embermq.store.log.reader import LogReader
from support.connect_server import CLIENT_PACKAGES, ConnectServer
from support.lakes import feed, new_lake, say_all_is_known
from support.recorded import START_US, Recorder

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SOURCE = """
import sys
from embermq.spark import register
register(spark)
data, place = sys.argv[1:]
print(type(spark).__module__)
log = spark.read.format("embermq").option("filter", "t/1").schema("offset long, topic string")
print(log.load(data).where("offset > 10").count(), spark.sql("select mqtt_matches('t/+', 't/1')").collect()[0][0])
stream = spark.readStream.format("embermq").option("maxRecordsPerTrigger", 100).load(data)
for _ in range(2):  # the second one has nothing to do
    query = (
        stream.select("offset", "topic", "payload").writeStream.format("delta")
        .option("checkpointLocation", place + "/checkpoint").trigger(availableNow=True).start(place + "/copy")
    )
    query.awaitTermination()
copy = spark.read.format("delta").load(place + "/copy")
print(copy.count(), copy.select("offset").distinct().count())
try:
    spark.read.format("embermq").option("filter", "a/#/b").load(data).count()
except Exception as error:
    print(next(line for line in str(error).splitlines() if "OptionError" in line))
"""

# Not registered: Spark finds the package that is installed beside it.
SINK = """
import sys
data, place, url = sys.argv[1:]
rows = spark.range(50).selectExpr("concat('batch/', id) topic", "cast(id as string) payload")
rows.write.format("embermq").mode("append").options(url=url, retain="true").save()
stream = spark.readStream.format("embermq").schema("topic string, payload binary").load(data)
(
    stream.writeStream.format("embermq").options(url=url, checkpointLocation=place + "/sent")
    .trigger(availableNow=True).start().awaitTermination()
)
"""

LAKE = """
import json, sys
from embermq.instants import EPOCH
from embermq.lake.lake import Lake
from embermq.spark.queries.as_of import retained_as_of, retained_history
from embermq.spark.queries.registration import SchemaName, register_tables
from embermq.spark.queries.silences import silences
from embermq.spark.queries.sql import run_sql
from datetime import timedelta
lake = Lake(sys.argv[1])
moments = [int(one) for one in sys.argv[2:]]

def kept(frame):
    return sorted([row.topic, bytes(row.payload).decode(), row.offset] for row in frame.collect())

def show(value):
    print(json.dumps(value))

show([kept(retained_as_of(spark, lake, EPOCH + timedelta(microseconds=at), "t/#")) for at in moments])
show(retained_history(spark, lake).count())
show(silences(spark, lake).count())
show(run_sql(spark, lake, "select count(*) from messages", 1).rows)
show(register_tables(spark, lake, SchemaName("spark_catalog", "ember")))
show([kept(spark.sql(f"select * from ember.retained_as_of(timestamp_micros({at}), 't/#')")) for at in moments])
show(spark.table("ember.gaps").schema["job"].metadata["comment"])
"""

REFUSED = """
import sys
from pathlib import Path
from embermq.spark import PipelineError, build_session
from embermq.lake.lake import Lake
from embermq.spark.pipeline import run
data, lake = sys.argv[1:]
for attempt in (
    lambda: run(Path(data), Lake(lake), once=True, session=spark),
    lambda: run(Path(data), Lake(lake), once=True, master="sc://127.0.0.1:1"),
    lambda: use_spark(Lake("hdfs://name/lake"), spark),
    lambda: build_session(),
):
    try:
        attempt()
    except PipelineError as error:
        print(error)
"""

TOKEN = """
import sys
from embermq.spark import register
register(spark)
server, file = sys.argv[1:]
print(spark.read.format("embermq").options(server=server, tokenFile=file, kinds="publish").load().count())
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    if not CLIENT_PACKAGES.is_dir():
        pytest.skip(f"no {CLIENT_PACKAGES}: `make test-spark` installs what clients of Spark Connect need")
    with ConnectServer(tmp_path_factory.mktemp("connect")) as started:
        yield started


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    recorder = Recorder(tmp_path_factory.mktemp("recorded") / "data")
    for number in range(300):
        recorder.publish(f"t/{number % 4}", b"%d" % number if number % 7 else b"", retain=True)
    recorder.close()
    return recorder


def test_the_source_is_read_as_a_batch_and_as_a_stream(server: ConnectServer, made: Recorder, tmp_path: Path) -> None:
    said = server.run_client(SOURCE, made.data, tmp_path)
    of_topic = sum(1 for offset, _, topic, *_ in made.published if topic == "t/1" and offset > 10)
    assert said[:3] == ["pyspark.sql.connect.session", f"{of_topic} True", "300 300"]
    assert "option 'filter' is 'a/#/b': expected " in said[3] and len(said) == 4


def test_rows_are_published(server: ConnectServer, made: Recorder, tmp_path: Path) -> None:
    with Broker.in_thread(data=tmp_path / "other", sys_interval_s=0) as broker:
        server.run_client(SINK, made.data, tmp_path, f"mqtt://127.0.0.1:{broker.port}")
    arrived = [row for batch in LogReader(tmp_path / "other" / "log").batches(1) for row in batch.to_pylist()]
    published = sorted((row["topic"], row["payload"]) for row in arrived if row["kind"] == 1)
    expected = [(f"batch/{number}", b"%d" % number) for number in range(50)]
    assert published == sorted(expected + [(topic, payload) for _, _, topic, payload, *_ in made.published])


def test_a_lake_is_asked_and_registered(
    spark: SparkSession, server: ConnectServer, made: Recorder, tmp_path: Path
) -> None:
    jobs = all_jobs(JobSettings())
    lake = new_lake(spark, tmp_path / "lake", *jobs)
    for job in jobs:
        feed(spark, lake, made.data, job, [1, 120, 301])
    say_all_is_known(lake, made)
    moments = [START_US + 1_000, START_US + 100_500, made.now_us]
    said = [json.loads(line) for line in server.run_client(LAKE, lake.place, *map(str, moments))]
    expected = [
        sorted([topic, payload.decode(), offset] for topic, (payload, _, offset) in made.retained(at_us).items())
        for at_us in moments
    ]
    intervals = sum(1 for event in made.retained_events if event[3] is not None)
    assert said == [expected, intervals, 4, [[300]], [], expected, "The job that has not read the records."]


def test_what_cannot_work_says_so_in_a_sentence(server: ConnectServer, made: Recorder, tmp_path: Path) -> None:
    said = server.run_client(REFUSED, made.data, tmp_path / "lake")
    assert said == [
        "the pipeline cannot run over Spark Connect, which gives no access to the lake's files: give it a session in "
        "the driver's own process",
        "this cannot run over Spark Connect, and the master is sc://127.0.0.1:1: expected that of a cluster, or "
        "local[*]",
        "the files of the lake hdfs://name/lake cannot be reached over Spark Connect: `Lake` without a session reads "
        "them with delta-rs",
        "this cannot run over Spark Connect, and this process has such a session already: use another process",
    ]


def test_a_token_in_a_file_is_in_nothing_that_spark_writes(server: ConnectServer, tmp_path: Path) -> None:
    """One that a client gives as an option is in the event log, with the rest of its request."""
    token = write_token(tmp_path / "tokens", "spark", "viewer")
    (tmp_path / "token").write_text(token)
    http = HttpOptions(port=0, token_file=tmp_path / "tokens")
    with Broker.in_thread(data=tmp_path / "data", http=http) as broker:
        assert server.run_client(TOKEN, f"http://127.0.0.1:{broker.http_port}", tmp_path / "token") == ["0"]
    written = [file for file in server.directory.rglob("*") if file.is_file()]
    assert any("tokenFile" in file.read_text(errors="replace") for file in written)
    assert [file for file in written if token in file.read_text(errors="replace")] == []
