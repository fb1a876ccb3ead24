"""Which jobs there are, and how they run.

Owns: the list of jobs, and the settings of a pipeline.
A job for each group of tables: one whose tables are new or were deleted starts at the log's beginning while the others
go on.
"""

from dataclasses import dataclass, field
from typing import Final

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.clients import CLIENTS_JOB
from embermq.spark.jobs.job import Job
from embermq.spark.jobs.messages import MESSAGES_JOB
from embermq.spark.jobs.retained import RETAINED_JOB
from embermq.spark.jobs.topic_stats import WINDOW, topic_stats_job
from embermq.spark.jobs.typed_tables import TypedTable, typed_job
from embermq.spark.lake.maintenance import MaintenanceSettings

FRESH_S: Final = 10.0
RECORDS_MAX: Final = 1_000_000


@dataclass(frozen=True)
class JobSettings:
    """How the jobs run."""

    fresh_s: float = FRESH_S
    """How old the newest rows may be, where the cost allows it (`schedule`)."""
    records_max: int = RECORDS_MAX
    """The most records of one batch."""
    stats_window: str = WINDOW
    typed_tables: tuple[TypedTable, ...] = ()
    only: tuple[str, ...] = ()
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    rebuild: tuple[str, ...] = ()
    """Typed tables that are removed and built again from the log."""


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
