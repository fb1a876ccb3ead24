"""A lake on a server that speaks S3, through Hadoop's `s3a`: run, asked without Spark, and a second writer refused."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem
from typer.testing import CliRunner

from embermq.commands.pipeline import app
from spark.test_lake_at_url import recorded
from spark.test_standalone_cluster import SUBMIT, Submitted
from support.java_services import S3A, jars
from support.pipeline_process import PipelineProcess
from support.server_process import EMBER
from support.standalone_cluster import StandaloneCluster, can_hide_directories

pytest.importorskip("moto")

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

LAKE = "s3a://lakes/one"

# Two commits of the same version: what decides between two pipelines.
FIGHT = """
import sys
from embermq.spark import build_session
from embermq.lake.errors import LakeError
from embermq.lake.lake import S3_STORE_SETTING, Lake
from embermq.spark.lake.hadoop_files import use_spark
from embermq.spark.lake.lease import Lease

lake = Lake(sys.argv[1])
spark = build_session("local[2]", settings=lake.spark_settings())
use_spark(lake, spark)
jvm, hadoop = spark._jvm, spark._jsparkSession.sessionState().newHadoopConf()
loader = spark._jsparkSession.sharedState().jarClassLoader()
store = loader.loadClass("embermq.S3LogStore").getConstructors()[0]
arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
arguments[0] = hadoop
path = jvm.org.apache.hadoop.fs.Path(lake.table("_delta_log/00000000000000000007.json"))
for text in ("one", "one", "two"):
    lines = jvm.java.util.ArrayList()
    lines.add(text)
    try:
        store.newInstance(arguments).write(path, lines.iterator(), False, hadoop)
        print("written", text)
    except Exception as error:
        print(error.java_exception.getClass().getName(), text)
print("read", lake.files.read("_delta_log/00000000000000000007.json").strip())
spark.conf.set(S3_STORE_SETTING, "io.delta.storage.S3SingleDriverLogStore")
try:
    Lease(spark, lake)
except LakeError as error:
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a bucket; the settings of Spark for it."""
    said = tmp_path_factory.mktemp("s3") / "said"  # a line for every request: a pipe would be full soon
    with said.open("w") as output:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", "0"], stderr=output, stdout=output)
    try:
        deadline_s = time.monotonic() + 60
        while (found := re.search(r"127\.0\.0\.1:\d+", said.read_text())) is None:
            assert server.poll() is None and time.monotonic() < deadline_s, said.read_text()
            time.sleep(0.1)
        address = found[0]
        S3FileSystem(
            access_key="test",
            secret_key="test",
            endpoint_override=address,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir("lakes")
        yield {
            "spark.jars": ",".join(jars(*S3A)),
            "spark.hadoop.fs.s3a.endpoint": f"http://{address}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": "test",
            "spark.hadoop.fs.s3a.secret.key": "test",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    finally:
        server.kill()
        server.wait()


def test_a_lake_on_s3_is_run_resumed_and_asked(
    store: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = recorded(tmp_path)
    for _ in range(2):
        with PipelineProcess(made.data, LAKE, "--once", more=store) as pipeline:
            assert pipeline.process.wait(900) == 0, "".join(pipeline.said[-20:])
        made.publish("t/3", b"more", retain=True)
        made.flush()
    made.close()
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": store["spark.hadoop.fs.s3a.endpoint"],
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    def ask(*arguments: str) -> str:
        answered = CliRunner().invoke(app, [*arguments, "--lake", LAKE], catch_exceptions=False)
        assert answered.exit_code == 0, answered.output
        return answered.output

    assert ask("query", 'select count(distinct "offset") as n, count(*) as m from messages', "--json") == (
        '{"n": 201, "m": 201}\n'
    )
    expected = made.retained(before=202)
    assert ask("query", "select count(*) as n from retained", "--json") == f'{{"n": {len(expected)}}}\n'
    assert "more" in ask("as-of", "now", "t/3", "--csv")
    assert "pipeline: done" in ask("status")


def test_of_two_writers_of_one_commit_one_wins(store: dict[str, str], tmp_path: Path) -> None:
    """And without the setting that makes it so, no pipeline begins."""
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in store.items()))
    said = subprocess.run(
        [sys.executable, "-c", FIGHT, "s3a://lakes/two"],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=600,
        check=False,
    )
    assert said.returncode == 0, said.stderr[-3000:]
    assert said.stdout.splitlines()[-5:] == [
        "written one",
        "written one",  # a request that was repeated
        "java.nio.file.FileAlreadyExistsException two",
        "read one",
        "refused: s3a://lakes/two can only be written in a session with "
        "spark.delta.logStore.s3a.impl at embermq.S3LogStore",
    ]


def test_a_pipeline_is_submitted_to_a_cluster(store: dict[str, str], tmp_path: Path) -> None:
    """Its executors have neither the jars nor the log: both come from the driver."""
    lake, hidden = "s3a://lakes/submitted", [tmp_path / "data"]
    made = recorded(tmp_path)
    with StandaloneCluster(tmp_path / "spark", hidden if can_hide_directories() else []) as cluster:
        settings = {**store, "spark.executor.memory": "600m", "spark.driver.host": "127.0.0.1"}
        conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        run = ["--data", str(made.data), "--lake", lake, "--once", "--only", "messages", "--only", "retained"]
        for _ in range(2):
            Submitted([*SUBMIT, "--master", cluster.url, *conf, "--", *run], tmp_path / "submitted.log").finish()
            made.publish("t/3", b"more", retain=True)
            made.flush()
    made.close()
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in store.items()))
    query = "select count(distinct offset) n, count(*) m, (select count(*) from retained) r from messages"
    said = subprocess.run(
        [*EMBER, "pipeline", "query", query, "--lake", lake, "--engine", "spark", "--master", "local[2]", "--json"],
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert json.loads(said.stdout) == {"n": 201, "m": 201, "r": len(made.retained(before=202))}, said.stderr[-3000:]


def test_without_the_jars_one_sentence_says_what_is_missing(tmp_path: Path) -> None:
    made = recorded(tmp_path, 5)
    made.close()
    with PipelineProcess(made.data, LAKE, "--once") as pipeline:
        assert pipeline.process.wait(300) == 2, "".join(pipeline.said[-20:])
    assert re.match(r"ember: the lake s3a://lakes/one cannot be opened: .*S3AFileSystem not found", pipeline.said[-1])
