"""The pipeline's progress, from the file that it writes in the lake, with what its tables hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from embermq.http.fields import Model, Nothing, Timestamp, shown_instant
from embermq.http.operation import OPERATOR, VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.pipeline.lake_tables import NOTHING_KNOWN, GapFacts, LakeFacts, TableFacts, read_tables
from embermq.instants import utc_text
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.pause import go_on as go_on_with
from embermq.lake.pause import pause as pause_lake
from embermq.lake.pause import paused_by
from embermq.lake.progress import read_progress


class JobFacts(Model):
    """A job. `lag` are the records that it is behind the log, as of now; `violations` the rows of such a table."""

    name: str
    offset: int | None = None
    records: int
    rate: Annotated[float, Field(description="Records a second, when it was last written.")]
    lag: int | None = None
    violations: int | None = None


class Pause(Model):
    """Since when and by whom the pipeline applies nothing."""

    since: Timestamp | None = None
    by: str


class PipelineFacts(Model):
    """What the last pipeline has written; without `written` there was none.

    `tables` and `gaps` are left out where they cannot be read: without a local lake, or without delta-rs.
    """

    state: str | None = None
    written: Timestamp | None = None
    paused: Annotated[Pause | None, Field(description="Left out unless an operator has paused it.")] = None
    jobs: list[JobFacts]
    tables: list[TableFacts] | None = None
    gaps: Annotated[list[GapFacts] | None, Field(description="The newest, at most 100.")] = None


def progress_in(lake: Path | None) -> dict[str, Any]:
    """The file as it is; empty if there is none that can be read."""
    try:
        return {} if lake is None else read_progress(Lake(lake))
    except (OSError, ValueError):
        return {}


def pause_of(lake: Path | None) -> Pause | None:
    """The pause of a lake, if there is one."""
    found = None if lake is None else paused_by(Lake(lake))
    return None if found is None else Pause(since=shown_instant(found[0]), by=found[1])


def facts_of(
    progress: dict[str, Any], log_end: int, lake: LakeFacts = NOTHING_KNOWN, pause: Pause | None = None
) -> PipelineFacts:
    """Lags are as of now: a pipeline that has stopped falls behind."""
    jobs: list[JobFacts] = []
    found = progress.get("jobs")
    for name, job in found.items() if isinstance(found, dict) else ():
        if not isinstance(job, dict):
            continue
        offset: int | None = job.get("offset")
        if not isinstance(offset, int):
            offset = None
        records, rate, violations = job.get("records"), job.get("rate"), job.get("violations")
        jobs.append(
            JobFacts(
                name=str(name),
                offset=offset,
                records=records if isinstance(records, int) else 0,
                rate=float(rate) if isinstance(rate, int | float) else 0.0,
                lag=None if offset is None else max(0, log_end - offset),
                violations=violations if isinstance(violations, int) else None,
            )
        )
    state, written = progress.get("state"), progress.get("written")
    return PipelineFacts(
        state=state if isinstance(state, str) else None,
        written=utc_text(int(written * 1_000_000)) if isinstance(written, int | float) else None,
        paused=pause,
        jobs=jobs,
        tables=lake.tables,
        gaps=lake.gaps,
    )


async def pipeline(call: Call[Nothing, Nothing]) -> Answer:
    service = call.service
    progress, paused = await service.on_thread(lambda: (progress_in(service.lake), pause_of(service.lake)))
    lake = await service.lake_tables.get(lambda: service.on_thread(lambda: read_tables(service.lake)))
    return facts_of(progress, service.server.store.next_offset(), lake, paused)


class PauseAnswer(Model):
    """`changed` is false if it was so already."""

    changed: bool


async def pause(call: Call[Nothing, Nothing]) -> Answer:
    return await _change(call, "pause", lambda lake: pause_lake(lake, call.actor.name))


async def go_on(call: Call[Nothing, Nothing]) -> Answer:
    return await _change(call, "go-on", go_on_with)


async def _change(call: Call[Nothing, Nothing], verb: str, change: Callable[[Lake], bool]) -> Answer:
    place = call.service.lake
    if place is None:
        raise HttpRefusal(409, "the server knows no lake that is a directory")
    outcome = "failed"
    try:
        changed = await call.service.on_thread(lambda: change(Lake(place)))
        outcome = "done" if changed else "it was so already"
    except LakeError as error:
        outcome = str(error)
        raise HttpRefusal(409, str(error)) from None
    finally:
        call.audit(f"pipeline {verb}", str(place), outcome)
    return PauseAnswer(changed=changed)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/pipeline",
        role=VIEWER,
        summary="How far the pipeline is with each of its tables, what they hold, and the gaps.",
        handle=pipeline,
        query=Nothing,
        body=Nothing,
        answer=PipelineFacts,
    ),
    Operation(
        method="POST",
        path="/api/v1/pipeline/pause",
        role=OPERATOR,
        summary="Have the pipeline apply nothing from its next batch on.",
        handle=pause,
        query=Nothing,
        body=Nothing,
        answer=PauseAnswer,
        statuses=(409,),
    ),
    Operation(
        method="POST",
        path="/api/v1/pipeline/go-on",
        role=OPERATOR,
        summary="Let a paused pipeline go on, where it was.",
        handle=go_on,
        query=Nothing,
        body=Nothing,
        answer=PauseAnswer,
        statuses=(409,),
    ),
)
