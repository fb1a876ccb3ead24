"""The pipeline in this process: all tables at once, resumed, rebuilt, asked, compacted, and read by other tools."""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from embermq.commands.pipeline import app
from embermq.errors import ConfigError
from embermq.lake.errors import LakeError, PipelineError
from embermq.lake.expectations import Expectation
from embermq.lake.lake import Lake
from embermq.lake.pause import go_on, pause
from embermq.lake.progress import read_progress
from embermq.lake.rollups import Rollup
from embermq.lake.schema import TABLES
from embermq.lake.typed_tables import TypedTable
from embermq.spark.errors import failure_reason
from embermq.spark.jobs.catalog import JobSettings
from embermq.spark.lake.compaction import compact
from embermq.spark.lake.tables import read_table, table_names
from embermq.spark.pipeline import run
from support.lakes import retained_of, rows
from support.recorded import Recorder

SETTINGS = JobSettings(
    records_max=400,
    typed_tables=(TypedTable(name="numbers", topic_filter="t/+", format="number", levels=("", "which")),),
    rollups=(Rollup(name="minutes", typed_name="numbers", every="minute"),),
    expectations=(Expectation(typed_name="numbers", column="value", max=200),),
)


class Run:
    """A log and the lake made of it; `offsets` must be in `messages` once each."""

    def __init__(self, directory: Path) -> None:
        self.made = Recorder(directory / "data", segment_bytes=8_000)
        self.lake = Lake(directory / "lake")
        self.publish(300)

    def publish(self, count: int) -> None:
        for number in range(count):
            self.made.publish(f"t/{number % 9}", b"%d" % number if number % 13 else b"", number % 3, number % 2 == 0)
        self.made.remove_retained("t/4")
        self.made.flush()

    def run(self, **options: Any) -> dict[str, int]:
        settings = options.pop("settings", SETTINGS)
        done = run(self.made.data, self.lake, once=True, settings=settings, lock_wait_s=0, **options)
        return {job.name: job.records for job in done}

    def check(self, spark: SparkSession) -> None:
        offsets = [row[0] for row in read_table(spark, self.lake, "messages").select("offset").collect()]
        assert sorted(offsets) == [published[0] for published in self.made.published]
        assert retained_of(read_table(spark, self.lake, "retained")) == self.made.retained()


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    made = Run(tmp_path_factory.mktemp("pipeline"))
    assert made.run() == dict.fromkeys(
        [*("messages", "retained", "topic_stats", "clients"), "numbers", "minutes", "numbers_violations"], 301
    )
    yield made
    made.made.close()


def test_all_tables_are_there_and_equal_what_was_recorded(spark: SparkSession, ran: Run) -> None:
    ran.check(spark)
    expected = [name for name in TABLES if name != "gaps"]  # there is none
    assert table_names(ran.lake) == [*expected, "minutes", "numbers", "numbers_rejects", "numbers_violations"]
    above = [one[0] for one in ran.made.published if one[3] and int(one[3]) > 200]
    assert sorted(row["offset"] for row in rows(spark, ran.lake, "numbers_violations")) == above != []
    assert read_progress(ran.lake)["jobs"]["numbers_violations"]["violations"] == len(above)
    row = read_table(spark, ran.lake, "messages").where("offset = 6").collect()[0]
    published = ran.made.published[5]
    assert (row["topic"], bytes(row["payload"]), row["qos"], row["retain"], row["client_id"]) == published[2:]


def test_every_table_is_compressed_with_zstd(ran: Run) -> None:
    files = [path for path in ran.lake.directory.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert {path.relative_to(ran.lake.directory).parts[0] for path in files} >= {"messages", "retained", "numbers"}
    for path in files:
        group = parquet.ParquetFile(path).metadata.row_group(0)
        assert {group.column(number).compression for number in range(group.num_columns)} == {"ZSTD"}, path


def test_other_tools_read_the_tables(spark: SparkSession, ran: Run) -> None:
    deltalake = pytest.importorskip("deltalake")
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    messages = deltalake.DeltaTable(ran.lake.table("messages")).to_pyarrow_table()
    assert sorted(messages["offset"].to_pylist()) == [published[0] for published in ran.made.published]
    retained = deltalake.DeltaTable(ran.lake.table("retained")).to_pyarrow_table()
    assert {row["topic"]: row["payload"] for row in retained.to_pylist()} == {
        topic: payload for topic, (payload, _, _) in ran.made.retained().items()
    }
    busiest = duckdb.sql("select topic, count(*) from messages group by topic order by 2 desc, 1 limit 1").fetchall()
    counts = {topic: sum(1 for one in ran.made.published if one[2] == topic) for topic in ran.made.retained()}
    assert busiest[0][1] == max(counts.values())
    assert polars.from_arrow(messages).filter(polars.col("qos") == 2).height == sum(
        1 for published in ran.made.published if published[4] == 2
    )


def test_every_reader_finds_the_same_rows(spark: SparkSession, ran: Run) -> None:
    deltalake = pytest.importorskip("deltalake")
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    names = table_names(ran.lake)
    assert {"numbers", "minutes"} <= {*names}
    for name in names:
        found = read_table(spark, ran.lake, name)
        columns = ", ".join(f'"{column}"' for column in found.columns)
        opened = deltalake.DeltaTable(ran.lake.table(name))
        connection = duckdb.connect()
        connection.execute("set TimeZone = 'UTC'")
        connection.register("found", opened.to_pyarrow_dataset())
        expected = shown(found.toArrow())
        assert shown(opened.to_pyarrow_table(columns=found.columns)) == expected
        assert shown(connection.sql(f"select {columns} from found").to_arrow_table()) == expected
        assert shown(polars.read_delta(ran.lake.table(name)).select(found.columns).to_arrow()) == expected


def shown(table: pa.Table) -> list[str]:
    """The rows of a table as text, sorted."""
    return sorted(json.dumps(row, default=str) for row in table.to_pylist())


def ask(*arguments: str) -> str:
    answered = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert answered.exit_code == 0, answered.output
    return answered.output


def test_the_commands_answer(spark: SparkSession, ran: Run, tmp_path: Path) -> None:
    lake = ["--lake", str(ran.lake.directory)]
    data = ["--data", str(ran.made.data)]
    for engine, offset in ("duckdb", '"offset"'), ("spark", "offset"):
        sql = f"select count(*) as n from messages join log using ({offset}) where mqtt_matches('t/+', log.topic)"
        said = ask("query", sql, *lake, *data, "--engine", engine, "--json")
        assert said == f'{{"n": {len(ran.made.published)}}}\n'
        topic, (payload, qos, at) = sorted(ran.made.retained().items())[0]
        said = ask("as-of", "now", topic, *lake, "--engine", engine, "--csv")
        assert said.startswith("topic,payload,qos,offset,valid_from,client_id,expiry,payload_format,content_type,")
        assert f"\n{topic},{payload.decode()},{qos},{at},2023-11-14T" in said
        with pytest.raises(ConfigError, match="is not known: the lake knows it from 2023-11-14T"):
            before = ["as-of", "2020-01-01T00:00:00Z", *lake, "--engine", engine]
            CliRunner().invoke(app, before, catch_exceptions=False)
    assert "all 8 rules are kept" in ask("audit", *lake)
    said = ask("status", *lake)
    assert "pipeline: done" in said and "retained" in said
    output = tmp_path / "report.html"
    ask("report", *lake, "-o", str(output))
    page = output.read_text()
    assert page.count("<svg") > 2 and "t/3" in page and "<script" not in page and "http" not in page
    with pytest.raises(ConfigError, match="no lake"):
        CliRunner().invoke(app, ["query", "select 1", "--lake", str(tmp_path)], catch_exceptions=False)
    for engine, reason in ("duckdb", "Table with name nonsense does not exist"), ("spark", "TABLE_OR_VIEW_NOT_FOUND"):
        with pytest.raises(ConfigError, match=reason):
            wrong = ["query", "select * from nonsense", *lake, "--engine", engine]
            CliRunner().invoke(app, wrong, catch_exceptions=False)
    for sql, reason in (
        ("select * from csv.`/etc/passwd`", "TABLE_OR_VIEW_NOT_FOUND"),
        (f"insert overwrite local directory '{tmp_path}/out' using csv select topic from messages", "expected a query"),
        (f"with a as (select 1) insert into delta.`{ran.lake.table('messages')}` select * from a", "expected a query"),
        ("execute immediate 'select 1'", "expected a query"),
        ("select system.builtin.`reflect` /* */ ('java.lang.System', 'getenv', 'HOME')", "expected a query without"),
        ("selec 1", "PARSE_SYNTAX_ERROR"),
    ):
        with pytest.raises(ConfigError, match=reason):
            CliRunner().invoke(app, ["query", sql, *lake, "--engine", "spark"], catch_exceptions=False)
    assert not (tmp_path / "out").exists()
    assert ask("query", "show columns in messages", *lake, "--engine", "spark").count("offset") == 1
    with pytest.raises(ConfigError, match="T tuesday: expected an instant such as"):
        CliRunner().invoke(app, ["as-of", "tuesday", *lake], catch_exceptions=False)


def test_a_run_resumes_compacts_and_rebuilds(spark: SparkSession, ran: Run) -> None:
    ran.publish(100)
    assert ran.run()["messages"] == 101
    ran.check(spark)
    before = read_table(spark, ran.lake, "retained_closed").count()
    done = {one.table: one for one in compact(spark, ran.lake, keep_hours=0.0, only=("messages",))}
    assert done["messages"].files_removed > done["messages"].files_added >= 1
    # A deleted table is built again, lost positions repeat nothing, and all go on after compaction.
    shutil.rmtree(ran.lake.table("numbers"))
    shutil.rmtree(ran.lake.table("numbers_rejects"))
    (ran.lake.state_directory / "positions.json").unlink()
    ran.publish(50)
    assert ran.run(settings=JobSettings(typed_tables=SETTINGS.typed_tables, only=("messages", "retained", "numbers")))
    ran.check(spark)
    assert read_table(spark, ran.lake, "retained_closed").count() > before
    values = read_table(spark, ran.lake, "numbers").count() + read_table(spark, ran.lake, "numbers_rejects").count()
    assert values == sum(1 for one in ran.made.published if one[3] or not one[5])


def test_what_cannot_be_run_is_refused_in_one_sentence(spark: SparkSession, ran: Run, tmp_path: Path) -> None:
    with ran.lake.lock(0), pytest.raises(LakeError, match="another pipeline writes to"):
        ran.run()
    with pytest.raises(PipelineError, match="there is no job 'nonsense': expected one of messages"):
        ran.run(settings=JobSettings(only=("nonsense",)))
    other = JobSettings(
        typed_tables=(TypedTable(name="numbers", topic_filter="t/+", format="number"),), only=("numbers",)
    )
    with pytest.raises(LakeError, match=r"the table numbers .* was built with levels \['', 'which'\]"):
        ran.run(settings=other)
    shutil.copytree(ran.lake.directory, tmp_path / "lake")
    shutil.rmtree(tmp_path / "lake" / "retained_closed")
    with pytest.raises(LakeError, match="the table retained_closed is missing beside retained"):
        run(ran.made.data, Lake(tmp_path / "lake"), once=True, settings=JobSettings(only=("retained",)))


def test_a_log_that_fails_ends_the_run_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    made = Run(tmp_path)
    only = JobSettings(records_max=100, only=("messages",))
    assert made.run(settings=only) == {"messages": 301}
    made.publish(300)
    segment = sorted((made.made.data / "log").glob("*.log"))[-2]
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-60] + bytes([whole[-60] ^ 1]) + whole[-59:])  # past what was read before
    with pytest.raises(PipelineError, match=rf"messages: the log is damaged: .*{segment.name}"):
        made.run(settings=only)
    segment.write_bytes(whole)
    made.run(settings=only)
    offsets = [row[0] for row in read_table(spark, made.lake, "messages").select("offset").collect()]
    assert sorted(offsets) == [published[0] for published in made.made.published]
    # Another log in the same place, and a log that was trimmed before it was read.
    made.made.close()
    shutil.rmtree(made.made.data)
    made.made = Recorder(made.made.data, segment_bytes=2_000)
    made.made.now_us += 77
    made.publish(900)
    with pytest.raises(PipelineError, match=r"has the tables of another log than .*: name another --lake"):
        made.run(settings=only)
    made.made.close()


def test_a_continuous_run_takes_what_arrives_and_stops_when_told(spark: SparkSession, tmp_path: Path) -> None:
    made = Run(tmp_path)
    stop = threading.Event()
    seen: list[int] = []

    def report(progress: list[Any]) -> None:
        job = progress[0]
        seen.append(job.offset or 0)
        if job.offset == 302 and len(made.made.published) == 300:
            made.publish(50)
        if job.offset == 353 and job.lag == 0:
            stop.set()

    settings = JobSettings(fresh_s=0.2, only=("messages",))
    done = run(made.made.data, made.lake, once=False, settings=settings, report=report, stop=stop)
    assert (done[0].records, done[0].lag) == (352, 0)
    assert sorted(set(seen) - {0}) == [302, 353]
    made.made.close()


def test_a_paused_run_applies_nothing_until_it_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    made = Run(tmp_path)
    made.lake.open()
    assert pause(made.lake, "ann")
    stop = threading.Event()
    applied: list[int] = []

    def let_go_on() -> None:
        while read_progress(made.lake).get("state") != "paused":
            time.sleep(0.05)
        applied.append(read_progress(made.lake)["jobs"]["messages"]["records"])
        assert go_on(made.lake)

    def report(progress: list[Any]) -> None:
        if progress[0].lag == 0:
            stop.set()

    waiting = threading.Thread(target=let_go_on)
    waiting.start()
    settings = JobSettings(fresh_s=0.2, only=("messages",))
    done = run(made.made.data, made.lake, once=False, settings=settings, report=report, stop=stop)
    waiting.join()
    assert applied == [0] and done[0].records == 301
    assert read_progress(made.lake)["state"] == "stopped"
    assert pause(made.lake, "ann")
    made.publish(10)
    assert made.run(settings=JobSettings(only=("messages",))) == {"messages": 11}  # --once is asked for by somebody
    made.made.close()


def test_told_to_stop_while_spark_starts_it_starts_no_job(spark: SparkSession, tmp_path: Path) -> None:
    made = Run(tmp_path)
    stop = threading.Event()
    stop.set()
    assert set(made.run(stop=stop).values()) == {0}
    assert made.lake.table_names() == []
    assert read_progress(made.lake)["state"] == "stopped"
    made.made.close()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x\nTraceback\n  File y\nembermq.store.errors.LogTrimmed: offset 1 is gone\n\tat z", "offset 1 is gone"),
        ("a\nCaused by: java.io.IOException: No space left on device\n\tat b", "No space left on device (IOException)"),
        ("only this", "only this"),
    ],
)
def test_a_failed_query_is_told_in_one_sentence(text: str, reason: str) -> None:
    assert failure_reason(text) == reason
