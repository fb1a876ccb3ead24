"""Which jobs there are, and how they run.

Owns: the list of jobs, and the settings of a pipeline.
A job for each group of tables: one whose tables are new or were deleted starts at the log's beginning while the others
go on.
"""

from dataclasses import dataclass
from typing import Final

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.clients import CLIENTS_JOB
from embermq.spark.jobs.job import Job
from embermq.spark.jobs.messages import MESSAGES_JOB
from embermq.spark.jobs.retained import RETAINED_JOB
from embermq.spark.jobs.topic_stats import WINDOW, topic_stats_job
from embermq.spark.jobs.typed_tables import TypedTable, typed_job

MESSAGES_EVERY_S: Final = 2.0
TABLES_EVERY_S: Final = 30.0
"""A MERGE takes seconds whatever its size, so large and rare batches are cheap. `messages` has what is newer."""
RECORDS_PER_TRIGGER: Final = 2_500_000


@dataclass(frozen=True)
class JobSettings:
    """How the jobs run."""

    messages_every_s: float = MESSAGES_EVERY_S
    tables_every_s: float = TABLES_EVERY_S
    records_per_trigger: int = RECORDS_PER_TRIGGER
    stats_window: str = WINDOW
    skip_trimmed: bool = False
    typed_tables: tuple[TypedTable, ...] = ()
    only: tuple[str, ...] = ()
    rebuild: tuple[str, ...] = ()
    """Typed tables that are removed and built again from the log."""

    def every_s(self, job: Job) -> float:
        """Seconds between two batches of a job."""
        return self.messages_every_s if job is MESSAGES_JOB else self.tables_every_s


def all_jobs(settings: JobSettings) -> list[Job]:
    """Every job of a lake."""
    return [
        MESSAGES_JOB,
        RETAINED_JOB,
        topic_stats_job(settings.stats_window),
        CLIENTS_JOB,
        *map(typed_job, settings.typed_tables),
    ]


def chosen_jobs(settings: JobSettings) -> list[Job]:
    """The jobs to run: all of them unless `only` names some."""
    jobs = all_jobs(settings)
    names = [job.name for job in jobs]
    for name in settings.only:
        if name not in names:
            raise PipelineError(f"there is no job {name!r}: expected one of {', '.join(names)}")
    chosen = [job for job in jobs if not settings.only or job.name in settings.only]
    typed = [job.name for job in chosen if job.definition is not None]
    for name in settings.rebuild:
        if name not in typed:
            raise PipelineError(
                f"--rebuild {name}: expected a typed table that runs ({', '.join(typed) if typed else 'there is none'})"
            )
    return chosen
