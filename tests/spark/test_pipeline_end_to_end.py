"""From clients to tables through a real server, while the pipeline's driver is killed again and again."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from pyspark.sql import SparkSession

from embermq import Broker
from embermq.instants import EPOCH
from embermq.lake.errors import NotKnown
from embermq.lake.lake import Lake
from embermq.lake.progress import read_progress
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake.tables import read_table
from embermq.spark.options import parse_sink_options
from embermq.spark.pipeline import run
from embermq.spark.queries.as_of import retained_as_of
from embermq.spark.sink.publisher import connect_with_retry
from embermq.store.log.reader import LogReader
from support.lakes import retained_of
from support.pipeline_process import PipelineProcess
from support.recorded import Recorder

TOPICS = 40
MESSAGES_MAX = 1_500  # of a client: then it is silent, so that a slow machine can catch up
STEPS = ("--only", "messages", "--only", "retained", "--fresh", "500ms", "--records", "800", "--continuous")


class Traffic:
    """A client that publishes until it is told to stop, and remembers what was acknowledged."""

    def __init__(self, port: int, seed: int) -> None:
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._publisher = connect_with_retry(parse_sink_options({"url": f"mqtt://127.0.0.1:{port}"}), f"traffic-{seed}")
        self.name = f"c{seed}"
        self.published: list[tuple[str, bytes, int, bool]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            if len(self.published) > MESSAGES_MAX:
                continue
            rows = []
            for _ in range(self._random.randrange(1, 12)):
                # A client has topics of its own: then the last one it published is the one that is retained.
                topic = f"{self.name}/{self._random.randrange(TOPICS)}"
                payload = b"" if self._random.random() < 0.1 else b"%d" % len(self.published)
                rows.append((topic, payload, self._random.randrange(3), self._random.random() < 0.6))
                self.published.append(rows[-1])
            headers = [0x30 | qos << 1 | retain for _, _, qos, retain in rows]
            self._publisher.publish(headers, [row[0].encode() for row in rows], [row[1] for row in rows])
        self._publisher.finish()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


def retained_by_subscribing(port: int, expected: int) -> dict[str, bytes]:
    """What the server itself gives to a new subscriber."""
    found: dict[str, bytes] = {}
    done = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, "looker")

    def on_message(client: paho.Client, userdata: object, message: paho.MQTTMessage) -> None:
        if message.topic == "end":
            done.set()
        elif message.retain:
            found[message.topic] = bytes(message.payload)

    def on_connect(*_: object) -> None:
        client.subscribe([("#", 1), ("end", 1)])

    def on_subscribe(*_: object) -> None:
        client.publish("end", b"x", 1)  # a marker behind the retained messages

    client.on_message = on_message
    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert done.wait(60)
    finally:
        client.disconnect()
        client.loop_stop()
    assert len(found) == expected
    return found


@contextmanager
def everything_durable(port: int) -> Iterator[None]:
    """All that the server took before is durable, the ends of connections included.

    The SUBACK of a persistent session waits for its commit, and groups are committed in order.
    """
    connected, subscribed = threading.Event(), threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, "last", clean_session=False)
    client.on_connect = lambda *_: connected.set()
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert connected.wait(60)
        client.subscribe("nothing", 1)
        assert subscribed.wait(60)
        yield
    finally:
        client.disconnect()
        client.loop_stop()


def has_moved(lake: Lake, name: str) -> bool:
    """Whether a job has done a batch, or has nothing to do: the clients fall silent in the end."""
    job = read_progress(lake)["jobs"][name]
    return bool(job["batches"] > 0 or job["lag"] == 0)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.long)])
def test_the_tables_equal_what_was_published_though_the_driver_is_killed(
    spark: SparkSession, tmp_path: Path, kills: int
) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake")
    config = tmp_path / "ember.toml"
    config.write_text("[pipeline]\ncompact_files = 2\n")  # so that kills come between the commits of compactions too
    chance = random.Random(42)
    with Broker.in_thread(data=data, sys_interval_s=0) as broker:
        assert broker.port is not None
        clients = [Traffic(broker.port, seed) for seed in (1, 2)]
        try:
            for number in range(kills):
                with PipelineProcess(data, lake.directory, *STEPS, "--config", str(config)) as pipeline:
                    pipeline.wait_for("messages ")
                    # Some are killed in their first batches, others when a table has got one.
                    table = (None, "messages", None, "retained", None)[number]
                    if table is not None:
                        pipeline.wait_until(partial(has_moved, lake, table))
                    threading.Event().wait(chance.uniform(0, 4))
                    assert pipeline.process.poll() is None, "".join(pipeline.said[-40:])
                    pipeline.kill()
        finally:
            for client in clients:
                client.stop()
        # Once more, to the end that the log has when it starts.
        with everything_durable(broker.port):
            end = LogReader(data / "log").bounds()[1]
            done = run(data, lake, once=True, settings=JobSettings(only=("messages", "retained")))
        assert [job.offset is not None and job.offset >= end for job in done] == [True, True]
        last: dict[str, bytes] = {}
        for client in clients:
            for topic, payload, _, retain in client.published:
                if retain:
                    last.pop(topic, None)
                    if payload:
                        last[topic] = payload
        assert retained_by_subscribing(broker.port, len(last)) == last
    current = retained_of(read_table(spark, lake, "retained"))
    assert {topic: payload for topic, (payload, _, _) in current.items()} == last
    check_messages(spark, data, lake, clients)
    check_history(spark, data, lake, chance)


@pytest.mark.long
def test_sigterm_stops_it_cleanly_after_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    made = Recorder(tmp_path / "data")
    for number in range(3000):
        made.publish(f"t/{number % 50}", b"%d" % number, retain=True)
    made.close()
    lake = Lake(tmp_path / "lake")
    with PipelineProcess(made.data, lake.directory, *STEPS) as pipeline:
        pipeline.wait_until(
            lambda: bool(read_progress(lake)) and read_progress(lake)["jobs"]["messages"]["batches"] > 0
        )
        assert pipeline.terminate() == 0, "".join(pipeline.said[-40:])
    progress = read_progress(lake)
    assert progress["state"] == "stopped"
    reached = progress["jobs"]["messages"]["offset"]
    offsets = [row[0] for row in read_table(spark, lake, "messages").select("offset").orderBy("offset").collect()]
    assert offsets == list(range(1, reached))


def check_messages(spark: SparkSession, data: Path, lake: Lake, clients: list[Traffic]) -> None:
    rows = read_table(spark, lake, "messages").orderBy("offset").collect()
    logged = [
        row["offset"] for batch in LogReader(data / "log").batches(1) for row in batch.to_pylist() if row["kind"] == 1
    ]
    offsets = [row["offset"] for row in rows]
    assert offsets == [offset for offset in logged if offset <= offsets[-1]]
    for client in clients:
        mine = [row for row in rows if row["topic"].startswith(client.name + "/")]
        for qos in range(3):
            found = [
                (row["topic"], bytes(row["payload"]), row["qos"], row["retain"]) for row in mine if row["qos"] == qos
            ]
            assert found == [one for one in client.published if one[2] == qos]


def check_history(spark: SparkSession, data: Path, lake: Lake, chance: random.Random) -> None:
    """As-of answers against the log, replayed in Python."""
    events = [
        row
        for batch in LogReader(data / "log").batches(1)
        for row in batch.to_pylist()
        if row["kind"] == 1 and row["flags"] & 4 and row["topic"] != "end"
    ]
    for event in chance.sample(events, 6):
        state: dict[str, bytes] = {}
        for one in events:
            if one["timestamp"] <= event["timestamp"]:
                state.pop(one["topic"], None)
                if one["payload"]:
                    state[one["topic"]] = one["payload"]
        answer = retained_of(retained_as_of(spark, lake, event["timestamp"], "#"))
        assert {topic: payload for topic, (payload, _, _) in answer.items()} == state
    with pytest.raises(NotKnown, match="the lake knows it from"):
        retained_as_of(spark, lake, EPOCH + timedelta(seconds=1))
