"""Which jobs there are, and how they run.

Owns: the list of jobs, the settings of a pipeline, and the sentence for a wrong one, before Spark is started.
A job for each group of tables: one whose tables are new or were deleted starts at the log's beginning while the others
go on.
"""

import math
import re
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

_UNIT_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_LENGTH: Final = re.compile(rf"([0-9]{{1,9}})\s+({'|'.join(_UNIT_US)})s?(?:\s+|$)", re.IGNORECASE)
"""A part of a window's length. Spark knows more forms; these mean the same to it."""


@dataclass(frozen=True)
class JobSettings:
    """How the jobs run. PipelineError if they cannot run so."""

    fresh_s: float = FRESH_S
    """How old the newest rows may be, where the cost allows it (`schedule`)."""
    records_max: int = RECORDS_MAX
    """The most records of one batch."""
    stats_window: str = WINDOW
    typed_tables: tuple[TypedTable, ...] = ()
    only: tuple[str, ...] = ()
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    rebuild: tuple[str, ...] = ()
    """Typed tables, or `topic_stats`, that are removed and built again from the log."""

    def __post_init__(self) -> None:
        if not 0 < self.fresh_s < math.inf:
            raise PipelineError(f"--fresh {self.fresh_s:g}s: expected a time span above zero, such as 10s, 500ms or 2m")
        if self.records_max < 1:
            raise PipelineError(f"--records {self.records_max}: expected at least 1")
        window_us(self.stats_window)


def window_us(length: str) -> int:
    """The length of a window in microseconds. PipelineError if the text is none."""
    total_us, at, text = 0, 0, length.strip()
    while found := _LENGTH.match(text, at):
        total_us, at = total_us + int(found[1]) * _UNIT_US[found[2].lower()], found.end()
    if at < len(text) or total_us == 0:
        raise PipelineError(
            f"--window {length!r}: expected a length such as '5 minutes', '1 hour 30 minutes' or '1 day' (units: "
            f"{', '.join(_UNIT_US)})"
        )
    return total_us


def all_jobs(settings: JobSettings) -> list[Job]:
    """Every job of a lake."""
    return [
        MESSAGES_JOB,
        RETAINED_JOB,
        topic_stats_job(settings.stats_window, window_us(settings.stats_window)),
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
    rebuildable = [job.name for job in chosen if job.definition is not None]
    for name in settings.rebuild:
        if name not in rebuildable:
            raise PipelineError(
                f"--rebuild {name}: expected a typed table or topic_stats, if it runs "
                f"({', '.join(rebuildable) if rebuildable else 'there is none'})"
            )
    return chosen
