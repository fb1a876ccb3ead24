"""The pipeline: every job on one lake, up to the end of the log or until it is stopped.

Owns: the life of the streams: the lock, starting, watching, stopping cleanly, and the one sentence when one fails.
Never: what a job does.
"""

import re
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.catalog import JobSettings, chosen_jobs
from embermq.spark.jobs.job import Job
from embermq.spark.jobs.streams import StreamContext, start_job
from embermq.spark.lake.checkpoints import check_checkpoints
from embermq.spark.lake.definitions import check_definition
from embermq.spark.lake.lake import LOCK_WAIT_S, Lake
from embermq.spark.lake.progress import JobProgress, write_progress
from embermq.spark.session import DEFAULT_MASTER, build_session, launch_java
from embermq.store.log.reader import LogReader

POLL_S: Final = 0.5
STOP_WAIT_S: Final = 20.0
"""How long a clean stop waits for running batches; a batch that is cut off runs again at the next start."""

START_WAIT_S: Final = 60.0
START_ATTEMPTS: Final = 5

Report = Callable[[list[JobProgress]], None]
_REASON: Final = re.compile(r"^(?:Caused by: )?([\w.$]+): (.+)$", re.MULTILINE)
_NO_WORKER: Final = "Python worker failed to connect back"


def run(
    data: Path,
    lake: Lake,
    *,
    once: bool,
    master: str = DEFAULT_MASTER,
    settings: JobSettings | None = None,
    spark_settings: Mapping[str, str] | None = None,
    report: Report | None = None,
    stop: threading.Event | None = None,
    lock_wait_s: float = LOCK_WAIT_S,
) -> list[JobProgress]:
    """Run all jobs; returns what each did. `once`: up to the end that the log has now. PipelineError says what failed.

    `report` is called about twice a second. SIGTERM and SIGINT stop cleanly if this is the main thread; so does `stop`.
    """
    chosen = settings or JobSettings()
    jobs = chosen_jobs(chosen)
    end = LogReader(data / "log").bounds()[1] if once else None  # one for all jobs: they start one after the other
    lake.open()
    check_checkpoints(lake, data / "log")
    stopping = stop or threading.Event()
    session_settings = {**lake.spark_settings(), **(spark_settings or {})}
    with lake.lock(lock_wait_s) as lock, _signals(stopping):
        lake.keep_data_directory(data)
        _prepare_definitions(lake, jobs, chosen.rebuild)
        # After kill -9 of this process Java may run a moment longer; with the descriptor it keeps the lock until then.
        launch_java(master, session_settings, lake.java_log("pipeline"), (lock,))
        spark = build_session(master, "embermq pipeline", session_settings, functions=False)
        batch_slots = threading.BoundedSemaphore(max(1, spark.sparkContext.defaultParallelism // 2))
        context = StreamContext(spark, data, lake, chosen, end, batch_slots)
        return _run_jobs(context, jobs, report, stopping)


def _prepare_definitions(lake: Lake, jobs: list[Job], rebuild: Collection[str]) -> None:
    """Remove the tables that are to be built again, and refuse others whose settings have changed."""
    for job in jobs:
        if job.name in rebuild:
            for name in job.tables:
                lake.remove_table(name)
        if job.definition is not None:
            check_definition(lake, job.name, job.definition)


def _run_jobs(
    context: StreamContext, jobs: list[Job], report: Report | None, stopping: threading.Event
) -> list[JobProgress]:
    """Start the jobs, and watch them until all have ended or they are to stop."""
    log = LogReader(context.data / "log")
    queries: dict[str, StreamingQuery] = {}
    progress = [JobProgress(job.name) for job in jobs]
    state = "failed"
    try:
        for job in jobs:
            if stopping.is_set():
                break
            queries[job.name] = _start(context, job, stopping)
        while not stopping.is_set():
            active = _watch(queries, progress, log.bounds())
            _save_progress(context.lake, progress, log, "running")
            if report is not None:
                report(progress)
            if not active:
                break
            stopping.wait(POLL_S)
        _stop(list(queries.values()))
        _watch(queries, progress, log.bounds())  # count the batches that ended since
        state = "stopped" if stopping.is_set() else "done"
    finally:
        _stop(list(queries.values()))
        _save_progress(context.lake, progress, log, state)
    return progress


def _save_progress(lake: Lake, progress: list[JobProgress], log: LogReader, state: str) -> None:
    with suppress(OSError):  # a full disk also fails a job, whose error says more
        write_progress(lake, progress, log.bounds()[1], state)


def _start(context: StreamContext, job: Job, stopping: threading.Event) -> StreamingQuery:
    """Start a job and wait until its source answers.

    Spark gives the Python process of a source ten seconds to connect. On a busy machine that is not enough for several
    at once, so the jobs start one after the other, and one whose process was late is started again.
    """
    for _ in range(START_ATTEMPTS):
        query = start_job(context, job)
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
    """Update the progress of each job; whether a query still runs. Raises PipelineError if one has failed."""
    now_s = time.monotonic()
    active = False
    for job in progress:
        query = queries.get(job.name)
        if query is None:
            continue  # the pipeline was stopped before this job was started
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
    """All that Spark says of a failure, without the query's plan: the last of the causes is often the useful one."""
    cause = getattr(failure, "_cause", None)
    return f"{str(failure).partition('=== Streaming Query ===')[0]}\n{getattr(cause, '_stackTrace', '')}"


def failure_reason(text: str) -> str:
    """The one useful sentence in what Spark says of a failed query; its stack traces are in Spark's own log."""
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
    """Wait up to STOP_WAIT_S for the batches that run, then stop the queries."""
    deadline_s = time.monotonic() + STOP_WAIT_S
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            time.sleep(0.05)
        query.stop()


@contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event, on the main thread; elsewhere Python allows no handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
