"""A real standalone cluster whose workers see neither the data directory nor the folder of the lake's file system.

The log comes from the server over HTTP, the lake is on HDFS. A worker and the driver are killed on the way.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from embermq.access.tokens import write_token
from embermq.store.log.reader import LogReader
from support.java_services import hdfs
from support.ports import free_port
from support.server_process import ServerProcess, client, retained
from support.standalone_cluster import StandaloneCluster, can_hide_directories

# What a user's own program does: a stream into a table, and rows that are published.
PROGRAM = """
import os, sys
from pyspark.sql import SparkSession

server, token_file, lake, mqtt, *hidden = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
from embermq.spark import register
register(spark)

def seen(_):
    return [os.listdir(place) for place in hidden]

workers = spark.sparkContext.parallelize(range(4), 4).map(seen).collect()
print("hidden", all(not names for places in workers for names in places), flush=True)
log = {"server": server, "tokenFile": token_file}
stream = spark.readStream.format("embermq").options(**log, kinds="publish", maxRecordsPerTrigger="300").load()
copying = (
    stream.select("offset", "topic", "payload").writeStream.format("delta")
    .option("checkpointLocation", lake + "/_copy").trigger(availableNow=True).start(lake + "/copy")
)
while not copying.awaitTermination(0.5):
    print("batches", len(copying.recentProgress), flush=True)
copied = spark.read.format("delta").load(lake + "/copy")
print("copied", copied.count(), copied.select("offset").distinct().count(), flush=True)
batch = spark.read.format("embermq").options(**log, kinds="publish", minPartitions="4").load()
print("scanned", batch.count(), copied.select("offset", "topic", "payload").exceptAll(
    batch.select("offset", "topic", "payload")).count(), flush=True)
messages = spark.read.format("delta").load(lake + "/tables/messages")
print("messages", messages.count(), messages.select("offset").distinct().count(), flush=True)
kept = spark.read.format("delta").load(lake + "/tables/retained").select("topic", "payload").collect()
print("retained", sorted((row.topic, bytes(row.payload).decode()) for row in kept), flush=True)
rows = spark.read.format("delta").load(lake + "/tables/retained").selectExpr("concat('copy/', topic) topic", "payload")
rows.repartition(4).write.format("embermq").mode("append").options(url=mqtt, retain="true").save()
print("published", flush=True)
"""


SUBMIT = [sys.executable, "-m", "embermq", "pipeline", "submit"]


class Submitted:
    """A run of spark-submit that can be killed with all that it started."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                arguments,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=log.parent,  # a program without a setting for it makes its warehouse there
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )
        self.said: list[str] = []

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line from now on in which a pattern is found."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"{self.said[-20:]}\n{self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        assert self.process.poll() is None, self.said[-20:]
        # The driver and Java are in another process group of this session, and would end cleanly after the command.
        for number in sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True):
            with suppress(ProcessLookupError):
                if os.getsid(number) == self.process.pid:
                    os.kill(number, signal.SIGKILL)
        self.process.communicate()

    def finish(self) -> list[str]:
        """All that it said; it must end well."""
        rest, _ = self.process.communicate(timeout=900)
        self.said += rest.splitlines(keepends=True)
        assert self.process.returncode == 0, f"{self.said[-20:]}\n{self.log.read_text()[-4000:]}"
        return self.said


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3000)
def test_exactly_once_on_a_cluster_that_sees_no_disk_of_ours(tmp_path: Path) -> None:
    if not can_hide_directories():
        pytest.skip("this user may not give processes mounts of their own (unshare -m)")
    port = free_port()
    token = write_token(tmp_path / "tokens", "lake", "reader")
    (tmp_path / "token").write_text(token)
    settings = {
        "http.port": str(port),
        "http.token_file": str(tmp_path / "tokens"),
        "store.segment_bytes": "1048576",
        "store.durability": "os",
    }
    data, stored = tmp_path / "data", tmp_path / "hdfs"
    stored.mkdir()
    truth: dict[str, bytes] = {}
    with ServerProcess(data, tmp_path / "server.log", settings) as server:
        with client(server, "publisher") as publisher:
            for number in range(1_200):
                topic, payload = f"room/{number * 7 % 40}", b"%d" % number
                publisher.publish(topic, payload, qos=1, retain=True)
                truth[topic] = payload
            publisher.disconnect()
        url, hidden = f"http://127.0.0.1:{port}", [data, stored]
        with hdfs(stored) as lake, StandaloneCluster(tmp_path / "spark", hidden) as cluster:
            conf = ["--conf", "spark.executor.memory=600m", "--conf", "spark.driver.host=127.0.0.1"]
            run = ["--server", url, "--token-file", str(tmp_path / "token"), "--lake", f"{lake}/tables", "--once"]
            run += ["--records", "200", "--only", "messages", "--only", "retained"]
            submit = [*SUBMIT, "--master", cluster.url, *conf, "--", *run]
            first = Submitted(submit, tmp_path / "first.log")
            first.wait_for(r"messages [1-9]")
            cluster.kill_worker()
            first.wait_for(r"messages ([4-9]\d\d|1,0)")
            first.kill()
            cluster.add_worker()
            Submitted(submit, tmp_path / "second.log").finish()

            program = tmp_path / "program.py"
            program.write_text(PROGRAM)
            line = [*SUBMIT, "--master", cluster.url, *conf, "--print", "--"]
            printed = shlex.split(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
            mqtt = f"mqtt://127.0.0.1:{server.port}"
            user = [*printed[:-1], str(program), url, str(tmp_path / "token"), lake, mqtt, *map(str, hidden)]
            copying = Submitted(user, tmp_path / "copying.log")
            copying.wait_for("hidden True")
            cluster.kill_worker()
            cluster.add_worker()
            said = [each.strip() for each in copying.finish()]
        kept = sorted((topic, payload.decode()) for topic, payload in truth.items())
        assert "copied 1200 1200" in said and "scanned 1200 0" in said and "messages 1200 1200" in said
        assert f"retained {kept}" in said
        assert retained(server, "copy/#") == {f"copy/{topic}": payload for topic, payload in truth.items()}
    assert LogReader(data / "log").bounds()[0] == 1
