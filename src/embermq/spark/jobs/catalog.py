"""Which jobs there are, and how they run.

Owns: the list of jobs, the settings of a pipeline, and the sentence for a wrong one, before Spark is started.
A job for each group of tables: one whose tables are new or were deleted starts at the log's beginning while the others
go on.
"""

import math
from dataclasses import dataclass, field
from typing import Final

from embermq.lake.errors import PipelineError
from embermq.lake.expectations import Expectation, expected
from embermq.lake.rollups import Rollup
from embermq.lake.settings import PipelineSettings, window_us
from embermq.lake.typed_tables import TypedTable
from embermq.spark.jobs.clients import CLIENTS_JOB
from embermq.spark.jobs.expectations import expectations_job
from embermq.spark.jobs.job import Job
from embermq.spark.jobs.messages import MESSAGES_JOB
from embermq.spark.jobs.retained import RETAINED_JOB
from embermq.spark.jobs.rollups import rollup_job
from embermq.spark.jobs.topic_stats import topic_stats_job
from embermq.spark.jobs.typed_tables import typed_job
from embermq.spark.lake.maintenance import MaintenanceSettings

DEFAULTS: Final = PipelineSettings()


@dataclass(frozen=True)
class JobSettings:
    """How the jobs run. PipelineError if they cannot run so."""

    fresh_s: float = DEFAULTS.fresh_s
    """How old the newest rows may be, where the cost allows it (`schedule`)."""
    records_max: int = DEFAULTS.records_max
    """The most records of one batch."""
    stats_window: str = DEFAULTS.window
    typed_tables: tuple[TypedTable, ...] = ()
    rollups: tuple[Rollup, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    only: tuple[str, ...] = ()
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    rebuild: tuple[str, ...] = ()
    """Typed tables, rollups, or `topic_stats`, that are removed and built again from the log."""

    def __post_init__(self) -> None:
        if not 0 < self.fresh_s < math.inf:
            raise PipelineError(f"--fresh {self.fresh_s:g}s: expected a time span above zero, such as 10s, 500ms or 2m")
        if self.records_max < 1:
            raise PipelineError(f"--records {self.records_max}: expected at least 1")
        window_us(self.stats_window)


def all_jobs(settings: JobSettings) -> list[Job]:
    """Every job of a lake."""
    return [
        MESSAGES_JOB,
        RETAINED_JOB,
        topic_stats_job(settings.stats_window, window_us(settings.stats_window)),
        CLIENTS_JOB,
        *map(typed_job, settings.typed_tables),
        *(rollup_job(rollup, rollup.source(settings.typed_tables)) for rollup in settings.rollups),
        *map(expectations_job, expected(settings.typed_tables, settings.expectations)),
    ]


def chosen_jobs(settings: JobSettings) -> list[Job]:
    """The jobs to run: all of them unless `only` names some."""
    jobs = all_jobs(settings)
    names = [job.name for job in jobs]
    for name in settings.only:
        if name not in names:
            raise PipelineError(f"there is no job {name!r}: expected one of {', '.join(names)}")
    chosen = [job for job in jobs if not settings.only or job.name in settings.only]
    rebuildable = [job.name for job in chosen if job.definition is not None]
    for name in settings.rebuild:
        if name not in rebuildable:
            raise PipelineError(
                f"--rebuild {name}: expected a typed table, a rollup, violations or topic_stats, if it runs "
                f"({', '.join(rebuildable) if rebuildable else 'there is none'})"
            )
    return chosen
