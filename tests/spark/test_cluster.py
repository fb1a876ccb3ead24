"""On a cluster: executors that are processes of their own read the log and write to the server."""

import subprocess
import sys
from pathlib import Path

import pytest

from embermq import Broker
from embermq.store.log.reader import LogReader
from support.recorded import Recorder

# A session of another master cannot live beside the suite's, so this is a program of its own.
PROGRAM = """
import sys
from pathlib import Path
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.pipeline import run
from embermq.spark import build_session
from embermq.lake.lake import Lake
from embermq.spark.lake.tables import read_table

data, lake_directory, url = sys.argv[1:]
lake = Lake(lake_directory)
done = run(Path(data), lake, once=True, master="local-cluster[2,1,1024]",
           settings=JobSettings(only=("messages", "retained")),
           spark_settings={"spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "2"})
spark = build_session("local-cluster[2,1,1024]")
messages = read_table(spark, lake, "messages")
executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
print("executors", len(executors) - 1)
print("messages", messages.count(), messages.select("offset").distinct().count())
rows = read_table(spark, lake, "retained").select("topic", "payload").repartition(2)
print("retained", sorted((row.topic, bytes(row.payload).decode()) for row in rows.collect()))
rows.write.format("embermq").mode("append").option("url", url).option("retain", "true").save()
"""


@pytest.mark.timeout(240)
@pytest.mark.long
def test_executors_of_their_own(tmp_path: Path) -> None:
    made = Recorder(tmp_path / "data")
    for number in range(2000):
        made.publish(f"t/{number % 5}", b"%d" % number, retain=True)
    made.close()
    with Broker.in_thread(data=tmp_path / "other", sys_interval_s=0) as broker:
        said = subprocess.run(
            [sys.executable, "-c", PROGRAM, made.data, tmp_path / "lake", f"mqtt://127.0.0.1:{broker.port}"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=220,
            check=False,
        )
    assert said.returncode == 0, said.stderr[-3000:]
    expected = sorted((topic, payload.decode()) for topic, (payload, _, _) in made.retained().items())
    assert said.stdout.splitlines()[-3:] == ["executors 2", "messages 2000 2000", f"retained {expected}"]
    arrived = [row for batch in LogReader(tmp_path / "other" / "log").batches(1) for row in batch.to_pylist()]
    assert sorted((row["topic"], row["payload"].decode()) for row in arrived if row["kind"] == 1) == expected
