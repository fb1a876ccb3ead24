"""The pipeline: every job on one lake, until the log's end or until it is told to stop.

Owns: the life of the streams: the lock, starting, watching, stopping cleanly, and the one sentence when one fails.
Never: what a job does.
"""

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.streams import Job, JobSettings, Turns, chosen_jobs, start_job
from embermq.spark.lake.checkpoints import check_checkpoints
from embermq.spark.lake.lake import LOCK_WAIT_S, java_log, locked, open_lake, spark_settings_of, write_progress
from embermq.spark.lake.progress import JobProgress, progress_file
from embermq.spark.lake.tables import Lake, as_lake
from embermq.spark.session import DEFAULT_MASTER, build_session, launch_java
from embermq.store.log.reader import LogReader

POLL_S: Final = 0.5
STOP_WAIT_S: Final = 20.0
"""How long a clean stop waits for the batches that are under way; what is cut off then is done again next time."""

START_WAIT_S: Final = 60.0
START_ATTEMPTS: Final = 5

Report = Callable[[list[JobProgress]], None]
_REASON: Final = re.compile(r"^(?:Caused by: )?([\w.$]+): (.+)$", re.MULTILINE)
_NO_WORKER: Final = "Python worker failed to connect back"


def run(
    data: Path,
    lake_directory: Path,
    *,
    once: bool,
    master: str = DEFAULT_MASTER,
    settings: JobSettings | None = None,
    spark_settings: Mapping[str, str] | None = None,
    report: Report | None = None,
    stop: threading.Event | None = None,
    lock_wait_s: float = LOCK_WAIT_S,
) -> list[JobProgress]:
    """Run all jobs; returns what each did. `once`: up to the log's end of now. PipelineError says what went wrong.

    `report` is called about twice a second. SIGTERM and SIGINT stop cleanly if this is the main thread; so does `stop`.
    """
    chosen = settings or JobSettings()
    lake = as_lake(lake_directory)
    log = LogReader(data / "log")
    open_lake(lake)
    check_checkpoints(lake, data / "log")
    stopping = stop or threading.Event()
    spark_settings = {**spark_settings_of(lake), **(spark_settings or {})}
    with locked(lake, lock_wait_s) as lock, _signals(stopping):
        # After kill -9 of this process Java may go on for a moment; the lock is free when it is gone as well.
        launch_java(master, spark_settings, java_log(lake, "pipeline"), (lock,))
        spark = build_session(master, "embermq pipeline", spark_settings, functions=False)
        jobs = chosen_jobs(chosen)
        queries: dict[str, StreamingQuery] = {}
        progress = [JobProgress(job.name) for job in jobs]
        state = "failed"
        try:
            turns = threading.BoundedSemaphore(max(1, spark.sparkContext.defaultParallelism // 2))
            for job in jobs:
                if stopping.is_set():
                    break
                queries[job.name] = _start(spark, job, data, lake_directory, chosen, once, turns, stopping)
            while not stopping.is_set():
                active = _watch(queries, progress, log.bounds())
                _leave_word(lake, progress, log, "running")
                if report is not None:
                    report(progress)
                if not active:
                    break
                stopping.wait(POLL_S)
            _stop(list(queries.values()))
            _watch(queries, progress, log.bounds())  # the batches that were under way
            state = "stopped" if stopping.is_set() else "done"
        finally:
            _stop(list(queries.values()))
            _leave_word(lake, progress, log, state)
    return progress


def _leave_word(lake: Lake, progress: list[JobProgress], log: LogReader, state: str) -> None:
    with suppress(OSError):  # a full disk has a better error on its way
        write_progress(lake, progress_file(progress, log.bounds()[1], state))


def _start(
    spark: SparkSession,
    job: Job,
    data: Path,
    lake_directory: Path,
    settings: JobSettings,
    once: bool,
    turns: Turns,
    stopping: threading.Event,
) -> StreamingQuery:
    """Start a job and wait until its source answers.

    Spark gives the Python process of a source ten seconds to appear. On a busy machine that is not much for several at
    once, so they start one after the other, and one that was too late is started again.
    """
    for _ in range(START_ATTEMPTS):
        query = start_job(spark, job, data, as_lake(lake_directory), settings, once, turns)
        deadline_s = time.monotonic() + START_WAIT_S
        while query.isActive and not _has_begun(query) and time.monotonic() < deadline_s:
            if stopping.wait(0.05):
                break
        failure = query.exception()
        if stopping.is_set() or failure is None or _NO_WORKER not in str(failure):
            break
    return query


def _has_begun(query: StreamingQuery) -> bool:
    status = query.status
    return status["isDataAvailable"] or status["message"].startswith("Waiting") or query.lastProgress is not None


def _watch(queries: Mapping[str, StreamingQuery], progress: list[JobProgress], log_bounds: tuple[int, int]) -> bool:
    """Take in what the queries have done; whether one of them still runs. Raises what ended one."""
    now_s = time.monotonic()
    active = False
    for job in progress:
        query = queries.get(job.name)
        if query is None:
            continue  # told to stop before it was its turn to start
        running = query.isActive
        job.update(query, log_bounds, now_s)
        if running:
            active = True
            continue
        failure = query.exception()
        if failure is not None:
            raise PipelineError(f"{job.name}: {failure_reason(_whole_text(failure))}")
    return active


def _whole_text(failure: StreamingQueryException) -> str:
    """All that Spark says of it, without the query's plan: what helps is often the last of the causes."""
    cause = getattr(failure, "_cause", None)
    return f"{str(failure).partition('=== Streaming Query ===')[0]}\n{getattr(cause, '_stackTrace', '')}"


def failure_reason(text: str) -> str:
    """The sentence in what Spark says of a failed query: its traces are for Spark's log, not for a person."""
    reasons: list[tuple[str, str]] = _REASON.findall(text)
    ours = [(kind, said) for kind, said in reasons if kind.startswith("embermq.")]
    if ours:
        return ours[-1][1].strip()
    outside = [(kind, said) for kind, said in reasons if "py4j" not in kind and "SparkException" not in kind]
    if outside:
        kind, said = outside[-1]
        return f"{said.strip()} ({kind.rsplit('.', 1)[-1]})"
    return text.strip().splitlines()[0] if text.strip() else "unknown"


def _stop(queries: list[StreamingQuery]) -> None:
    """Let each query finish its batch, for a while, then stop it."""
    deadline_s = time.monotonic() + STOP_WAIT_S
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            time.sleep(0.05)
        query.stop()


@contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
