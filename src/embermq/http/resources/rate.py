"""The rate: how many records log and archive have in each part of a span of time, from their indexes alone."""

import asyncio
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BeforeValidator, Field

from embermq.archive.errors import ArchiveError
from embermq.http.archived import ArchivedHistory
from embermq.http.fields import Instant, Model, Nothing, Timestamp, between, digits, now_us, past_us, shown_instant
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.service import Service
from embermq.instants import utc_text

if TYPE_CHECKING:
    from embermq.history.rates import ArchivedOffsets

BUCKETS: Final = 200
BUCKETS_MAX: Final = 1_000
ARCHIVE_S_MAX: Final = 3.0
"""So long it is waited for how far back the archive reaches, where the question names no instant."""

Buckets = Annotated[
    int, BeforeValidator(digits), between(1, BUCKETS_MAX, "Into how many parts the time is divided.", 240)
]


class RateQuery(Model):
    since: Annotated[Instant | None, Field(description="Without it, since the log or its archive begins.")] = None
    until: Annotated[Instant | None, Field(description="Without it, until now.")] = None
    buckets: Buckets = BUCKETS


class Rate(Model):
    """`counts` are the records of the log in each part, oldest first: messages, and what clients did beside. They are
    counted by commit groups, each at its first instant. `begins` and `ends` are those of the log with its archive, if
    it has records: what is before `begins` is not counted.

    `is_estimated`: of what only the archive has, the records of a segment count as spread evenly over its time.
    `archive_error` is why the archive could not be asked; then the answer begins where the log does.
    """

    since: Timestamp
    until: Timestamp
    bucket_s: float
    counts: list[int]
    is_estimated: bool = False
    begins: Timestamp | None = None
    ends: Timestamp | None = None
    archive_error: str | None = None


async def rate(call: Call[RateQuery, Nothing]) -> Answer:
    service = call.service
    query = call.query
    if service.log_directory is None:
        raise HttpRefusal(409, "a store in memory keeps no log")
    segments = [segment for segment in service.server.store.history.log_segments() if segment.first_timestamp_us]
    local_us = segments[0].first_timestamp_us if segments else 0
    asked_us = past_us("until", query.until)
    until_us = now_us() if asked_us is None else asked_us
    since_us = past_us("since", query.since)
    archive_error: str | None = None
    if since_us is None and service.archived is not None:
        archive_error = await _ask_begin(service.archived)
    archived_us = 0 if service.archived is None else service.archived.log.begins_us()
    begins_us = local_us
    if archived_us and archive_error is None:
        begins_us = min(local_us or archived_us, archived_us)
    if since_us is None:
        since_us = min(begins_us or until_us, until_us)
    if since_us > until_us:
        raise HttpRefusal(422, "since and until: expected the earlier instant first")
    span_us = max(1, until_us - since_us)
    bounds = [since_us + span_us * number // query.buckets for number in range(query.buckets + 1)]
    is_archived = archive_error is None and since_us < (local_us or until_us)
    found = await _offsets(service, service.log_directory, bounds, is_archived)
    begins_us = found.begins_us if is_archived else begins_us
    return Rate(
        since=utc_text(since_us),
        until=utc_text(until_us),
        bucket_s=span_us / query.buckets / 1_000_000,
        counts=[after - before for before, after in pairwise(found.offsets)],
        is_estimated=found.is_estimated,
        begins=shown_instant(begins_us),
        ends=shown_instant(segments[-1].last_timestamp_us) if segments else None,
        archive_error=archive_error,
    )


async def _ask_begin(archived: ArchivedHistory) -> str | None:
    """Find out how far back the archive reaches; why not, if that fails: a page shows at least what the log has."""
    try:
        async with asyncio.timeout(ARCHIVE_S_MAX):
            await archived.on_thread(lambda: archived.log.block_offsets_at(()))
    except ArchiveError as error:
        return str(error)
    except TimeoutError:
        return f"the archive has not answered within {ARCHIVE_S_MAX:.0f} s"
    return None


async def _offsets(service: Service, directory: Path, bounds: list[int], is_archived: bool) -> "ArchivedOffsets":
    archived = service.archived
    if not is_archived or archived is None:
        return await service.on_thread(partial(_local_offsets, directory, bounds))
    return await archived.on_thread(lambda: archived.log.block_offsets_at(bounds))


def _local_offsets(directory: Path, bounds: list[int]) -> "ArchivedOffsets":
    from embermq.history.joined import JoinedLog

    return JoinedLog(directory).block_offsets_at(bounds)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/messages/rate",
        role=VIEWER,
        summary="How many records the log and its archive have in each part of a span of time, and how far it reaches.",
        handle=rate,
        query=RateQuery,
        body=Nothing,
        answer=Rate,
        statuses=(409, 422),
    ),
)
