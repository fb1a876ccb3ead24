"""The tables of a lake in a metastore of Hive: the pipeline gives them names, and another process finds them there.

The metastore is Spark's own, with Derby in a directory.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.pipeline_process import PipelineProcess
from support.recorded import START_US, Recorder

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

# What somebody does who knows the metastore, and neither the lake nor this package's functions.
READER = """
import json, sys
from embermq.spark import build_session
metastore, warehouse, *moments = sys.argv[1:]
settings = json.loads(metastore) | {"spark.sql.warehouse.dir": warehouse}
spark = build_session("local[2]", settings=settings, source=False)

def kept(rows):
    return sorted([row.topic, bytes(row.payload).decode(), row.offset] for row in rows.collect())

names = sorted(row.tableName for row in spark.sql("show tables in ember").collect())
columns = [(name, field) for name in names for field in spark.table(f"ember.{name}").schema]
found = {
    "catalog": spark.conf.get("spark.sql.catalogImplementation"),
    "names": names,
    "without comment": [f"{name}.{field.name}" for name, field in columns if not field.metadata.get("comment")],
    "messages": spark.table("ember.messages").count(),
    "history": spark.table("ember.retained_history").count(),
    "as of": [kept(spark.sql(f"select * from ember.retained_as_of(timestamp_micros({at}))")) for at in moments],
    "matching": spark.sql("select count(*) from ember.messages where ember.mqtt_matches('t/+', topic)").collect()[0][0],
}
print(json.dumps(found))
"""


def test_another_process_finds_the_tables_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metastore = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
    }
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dderby.stream.error.file={tmp_path}/derby.log")
    made = Recorder(tmp_path / "data")
    for _ in range(2):
        for number in range(40):
            made.publish(f"t/{number % 4}", b"%d" % number if number % 7 else b"", retain=True)
        made.flush()
        names = ("--catalog", "spark_catalog", "--schema", "ember")
        with PipelineProcess(made.data, tmp_path / "lake", "--once", *names, more=metastore) as pipeline:
            assert pipeline.process.wait(400) == 0, "".join(pipeline.said[-20:])
        assert not [line for line in pipeline.said if "refused" in line]
    made.close()
    moments = [START_US + 1_000, START_US + 50_500, made.now_us]
    said = subprocess.run(
        [sys.executable, "-c", READER, json.dumps(metastore), str(tmp_path / "warehouse"), *map(str, moments)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=400,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    assert json.loads(said.stdout.splitlines()[-1]) == {
        "catalog": "hive",
        "names": [
            *("clients", "gaps", "messages", "retained", "retained_closed", "retained_history", "retained_known"),
            "topic_stats",
        ],
        "without comment": [],
        "messages": 80,
        "history": sum(1 for event in made.retained_events if event[3] is not None),
        "as of": [
            sorted([topic, payload.decode(), offset] for topic, (payload, _, offset) in made.retained(at_us).items())
            for at_us in moments
        ],
        "matching": 80,
    }
