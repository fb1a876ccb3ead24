"""The pipeline: every job on one lake, up to the end of the log or until it is stopped.

Owns: the life of a run: the lock, starting, batch after batch, stopping cleanly, and the one sentence when one fails.
Never: what a job does, and what a batch is (`batches`).
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, final

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from embermq.history.location import LogLocation, directory_location
from embermq.history.opening import open_log
from embermq.history.source import ReadableLog
from embermq.lake.damage import check_tables
from embermq.lake.delta import claim_table, gap_identifiers, newest_epoch, table_rows
from embermq.lake.errors import LeaseLost, PipelineError
from embermq.lake.lake import LOCK_WAIT_S, Lake
from embermq.lake.made_from import check_definition, has_definition
from embermq.lake.pause import is_paused as is_paused_by_operator
from embermq.lake.positions import Positions, check_log
from embermq.lake.progress import JobProgress, write_progress
from embermq.lake.reserve import LakeReserve
from embermq.lake.schema import GAPS, VIOLATIONS
from embermq.lake.stored_files import plain
from embermq.spark import register
from embermq.spark.after_gap import after_gap, is_at_gap
from embermq.spark.batches import BatchContext, run_batch
from embermq.spark.errors import failure_reason, whole_text
from embermq.spark.jobs.catalog import JobSettings, chosen_jobs
from embermq.spark.jobs.job import Job
from embermq.spark.jobs.preparation import prepare_job, reset_job
from embermq.spark.lake.hadoop_files import use_spark
from embermq.spark.lake.lease import LEASE_S, Lease
from embermq.spark.lake.maintenance import Maintenance
from embermq.spark.lake.scratch import Scratch, is_local
from embermq.spark.lake.tables import create_table
from embermq.spark.queries.registration import SchemaName, register_tables
from embermq.spark.schedule import Plan, Turn, next_plan, pause_s
from embermq.spark.session import (
    DEFAULT_MASTER,
    ONCE_SETTINGS,
    PIPELINE_SETTINGS,
    adopt_session,
    build_session,
    check_launch,
    launch_java,
)
from embermq.store.errors import StoreError
from embermq.store.log.errors import LogLost, LogTrimmed
from embermq.store.log.identity import past_lost

logger = logging.getLogger(__name__)

POLL_S: Final = 0.5
"""How often it looks at the log's end while it waits for new records."""
PAUSE_S_MAX: Final = 2.0
"""How often it does while no batch is due, whatever is new."""
PROGRESS_EVERY_S: Final = 5.0
PREPARED_AT_ONCE: Final = 3

Report = Callable[[list[JobProgress]], None]


def run(
    log: LogLocation | Path,
    lake: Lake,
    *,
    once: bool,
    master: str = DEFAULT_MASTER,
    settings: JobSettings | None = None,
    spark_settings: Mapping[str, str] | None = None,
    report: Report | None = None,
    stop: threading.Event | None = None,
    lock_wait_s: float = LOCK_WAIT_S,
    lease_s: float = LEASE_S,
    catalog: SchemaName | None = None,
    session: SparkSession | None = None,
) -> list[JobProgress]:
    """Run all jobs; returns what each did. `once`: up to the end that the log has now. PipelineError says what failed.

    `log` is where the log is read from; a path is a data directory.
    `report` is called every half second or two, and after each batch. SIGTERM and SIGINT stop cleanly if this is the
    main thread; so does `stop`. With `catalog` the tables get names there; what it refuses is logged. `session` is one
    of your own, with Delta Lake: `master` and `spark_settings` do not count then, and it is not stopped.
    """
    chosen = settings or JobSettings()
    jobs = chosen_jobs(chosen)
    if session is not None:
        adopt_session(session)
    else:
        check_launch(master, spark_settings or {})
    location = directory_location(log) if isinstance(log, Path) else log
    opened = open_log(location)
    end = opened.bounds()[1] if once else None
    stopping = stop or threading.Event()
    of_run = ONCE_SETTINGS if once else PIPELINE_SETTINGS
    session_settings = {**lake.spark_settings(), **of_run, **(spark_settings or {})}
    with _reasons(lake.place), ExitStack() as leaving:
        inherited: tuple[int, ...] = ()
        if lake.is_local:
            inherited = (_lock(lake, opened, jobs, chosen, lock_wait_s, leaving),)
        leaving.enter_context(_signals(stopping))
        if session is None:
            launch_java(master, session_settings, lake.java_log("pipeline"), inherited)
        with _reasons(lake.place):  # Spark opens the file system of the lake
            spark = session or build_session(master, "embermq pipeline", session_settings, source=False)
            if not is_local(spark):
                register(spark)
        lease = _take(spark, lake, opened, jobs, chosen, lease_s, leaving)
        if location.directory is not None:
            lake.keep_data_directory(location.directory)
        scratch = Scratch(spark, lake)
        leaving.callback(scratch.close)
        positions = Positions(lake, opened)
        named = {job.name: job for job in jobs}
        context = BatchContext(spark, location, opened, lake, named, positions, scratch)
        with _signals(stopping):  # once more: a Spark session brings a handler of its own
            return _Run(context, chosen, end, report, lease, catalog).run(stopping)


def _lock(
    lake: Lake, log: ReadableLog, jobs: list[Job], settings: JobSettings, wait_s: float, leaving: ExitStack
) -> int:
    """Lock a local lake and refuse what cannot be continued, before Java is started; the descriptor of the lock.

    After kill -9 of this process Java may run a moment longer; with the descriptor it keeps the lock that long.
    """
    lake.open()
    descriptor = leaving.enter_context(lake.lock(wait_s))
    check_log(lake, log)
    _check_definitions(lake, jobs, settings.rebuild)
    check_tables(lake)
    return descriptor


def _take(
    spark: SparkSession,
    lake: Lake,
    log: ReadableLog,
    jobs: list[Job],
    settings: JobSettings,
    lease_s: float,
    leaving: ExitStack,
) -> Lease | None:
    """Become the writer of a lake: its epoch, and at a URL its lease."""
    leaving.callback(_leave, lake)
    if lake.is_local:
        epochs = [newest_epoch(lake, name) for name in lake.table_names()]
        # The lock keeps others away, so the epoch can stay, unless what was applied is to be forgotten.
        lake.epoch = max(epochs, default=0) + bool(settings.rebuild)
        return None
    with _reasons(lake.place):
        use_spark(lake, spark)
        lake.open()
        check_log(lake, log)
        lease = Lease(spark, lake, lease_s)
        leaving.callback(lease.end)
        check_tables(lake)
        create_table(spark, lake, GAPS)
        claim_table(lake, GAPS.name, [identifier for job in jobs for identifier in gap_identifiers(job.name)])
        _check_definitions(lake, jobs, settings.rebuild)
    return lease


def _leave(lake: Lake) -> None:
    lake.epoch = None


def _check_definitions(lake: Lake, jobs: list[Job], rebuild: Collection[str]) -> None:
    """Refuse tables whose settings have changed, unless they are to be built again."""
    for job in jobs:
        if job.definition is None or job.name in rebuild:
            continue
        if job.found_definition is None or has_definition(lake, job.name):  # else its rows say it: `preparation`
            check_definition(lake, job.name, job.definition)


@final
class _Run:
    """One run of the pipeline: batch after batch."""

    __slots__ = (
        "_context",
        "_settings",
        "_end",
        "_report",
        "_log",
        "_turns",
        "_progress",
        "_maintenance",
        "_lease",
        "_catalog",
        "_next_write_s",
        "_reserve",
    )

    def __init__(
        self,
        context: BatchContext,
        settings: JobSettings,
        end: int | None,
        report: Report | None,
        lease: Lease | None,
        catalog: SchemaName | None,
    ) -> None:
        self._context: Final = context
        self._settings: Final = settings
        self._end: Final = end
        self._report: Final = report
        self._log: Final = context.log
        self._turns: Final[dict[str, Turn]] = {}
        self._progress: Final = {name: JobProgress(name) for name in context.jobs}
        self._maintenance: Final = Maintenance(context.spark, context.lake, settings.maintenance)
        self._lease: Final = lease
        self._catalog: Final = catalog
        self._next_write_s = 0.0
        lake = context.lake
        self._reserve: Final = LakeReserve(Path(lake.place) if lake.is_local else None)

    def run(self, stopping: threading.Event) -> list[JobProgress]:
        """Prepare the tables, then go on until the end or until told to stop."""
        state = "failed"
        was_paused = False
        try:
            if not stopping.is_set():
                self._prepare()
            if self._catalog is not None and not stopping.is_set():
                for refused in register_tables(self._context.spark, self._context.lake, self._catalog):
                    logger.warning("%s; the pipeline goes on", refused)
            while not stopping.is_set():
                if self._lease is not None:
                    self._lease.check()
                is_paused = self._end is None and is_paused_by_operator(self._context.lake)
                is_waiting = is_paused or (self._end is None and self._reserve.is_reached())
                plan = None if is_waiting else self._plan()
                if plan is not None:
                    self._batch(plan)
                self._tell("paused" if is_paused else "running", is_urgent=plan is not None or is_paused != was_paused)
                was_paused = is_paused
                if plan is None:
                    if self._end is not None:
                        break
                    stopping.wait(self._pause_s())
            state = "stopped" if stopping.is_set() else "done"
        except LeaseLost:
            state = "deposed"
            raise
        except PipelineError:
            if self._lease is not None and self._lease.is_lost():  # that may be why it has failed
                state = "deposed"
                self._lease.check()
            raise
        finally:
            if state != "deposed":  # the progress is another's then
                self._tell(state, is_urgent=True)
        return list(self._progress.values())

    def _prepare(self) -> None:
        """Prepare the tables of all jobs, several at once since each needs little of a core, and give each a turn."""
        jobs = self._context.jobs.values()
        if self._context.lake.is_local:
            with ThreadPoolExecutor(PREPARED_AT_ONCE) as pool:
                prepared = list(pool.map(self._prepare_one, jobs))
        else:  # only the thread that has added the jar of a lake on `s3a` finds the class in it
            prepared = [self._prepare_one(job) for job in jobs]
        for job, found in zip(jobs, prepared, strict=True):
            with _reasons(job.name):
                position = self._after_gap(job.name, found)
            self._turns[job.name] = Turn(job.name, job.is_merged, position)
            self._progress[job.name].offset = position
            self._count_violations(job.name)

    def _prepare_one(self, job: Job) -> int | None:
        context = self._context
        with _reasons(job.name):
            if job.name in self._settings.rebuild:
                reset_job(context.spark, job, context.lake, context.positions)
            return prepare_job(context.spark, job, context.lake, context.positions)

    def _after_gap(self, name: str, position: int | None) -> int:
        """Where a job goes on: at its position, or after the gap if the log no longer has what is there."""
        context = self._context
        if is_at_gap(self._log, position):
            position = after_gap(context.spark, context.log, context.lake, name, position)
            context.positions.save({name: position}, {})
        return self._log.bounds()[0] if position is None else position

    def _plan(self) -> Plan | None:
        end, now_s = self._log.bounds()[1], time.monotonic()
        if self._end is not None:
            end, now_s = min(end, self._end), float("inf")  # nobody waits
        plan = next_plan(self._turns.values(), end, self._settings.records_max, self._settings.fresh_s, now_s)
        return plan and replace(plan, end=past_lost(self._log.lost(), plan.end))

    def _pause_s(self) -> float:
        """How long to wait before the log's end is looked at again."""
        nobody_due_s = pause_s(self._turns.values(), self._settings.fresh_s, time.monotonic())
        return min(nobody_due_s, PAUSE_S_MAX) or POLL_S

    def _batch(self, plan: Plan) -> None:
        began_s = time.monotonic()
        try:
            with _reasons(", ".join(plan.jobs)):
                took_s, versions = run_batch(self._context, plan)
        except (LogTrimmed, PipelineError):  # trimmed by the server, since the batch was planned?
            if not any(is_at_gap(self._log, self._turns[name].position) for name in plan.jobs):
                raise
            for name in plan.jobs:
                with _reasons(name):
                    self._turns[name].position = self._after_gap(name, self._turns[name].position)
            return
        for name in plan.jobs:
            turn = self._turns[name]
            self._progress[name].advance(turn.position, plan.end)
            is_first = self._progress[name].batches == 1
            turn.position, turn.began_s, turn.took_s = plan.end, began_s, 0.0 if is_first else took_s[name]
            self._count_violations(name)
        with _reasons("maintenance"):
            for done in self._maintenance.after_batch(versions):
                logger.info("%s", done)

    def _count_violations(self, name: str) -> None:
        if self._context.jobs[name].tables[0].columns == VIOLATIONS.columns:
            self._progress[name].violations = table_rows(self._context.lake, name)

    def _tell(self, state: str, is_urgent: bool) -> None:
        """Compute the progress, write it for `status` if something changed or some time has passed, and report it."""
        now_s, end = time.monotonic(), self._log.end()
        for job in self._progress.values():
            job.update(end.next_offset, now_s)
            job.know(*self._context.positions.instants_us(job.name), end)
        if is_urgent or now_s >= self._next_write_s:
            self._next_write_s = now_s + PROGRESS_EVERY_S
            with suppress(OSError):  # a full disk also fails a job, whose error says more
                write_progress(self._context.lake, self._progress.values(), end, state)
                self._register()
        if self._report is not None and state == "running":
            self._report(list(self._progress.values()))

    def _register(self) -> None:
        """Tell the server what the log must keep for this lake, if all of its jobs run."""
        if not self._settings.only and self._turns.keys() == self._context.jobs.keys():
            name = self._context.lake.table("").rstrip("/")
            self._context.log.register_reader(name, min(turn.position for turn in self._turns.values()))


@contextmanager
def _reasons(names: str) -> Iterator[None]:
    """Turns what Spark, the log and the disk say into a PipelineError of one sentence."""
    try:
        yield
    except LogLost as error:
        raise PipelineError(f"{names}: {error}") from None
    except (PipelineError, LogTrimmed):
        raise
    except StoreError as error:  # of the log or its archive
        raise PipelineError(f"{names}: {error}") from None
    except OSError as error:
        raise PipelineError(f"{names}: {error.strerror or error} ({error.filename or type(error).__name__})") from None
    except DeltaError as error:
        raise PipelineError(f"{names}: {plain(str(error))}") from None
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"{names}: {failure_reason(whole_text(error))}") from None


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
