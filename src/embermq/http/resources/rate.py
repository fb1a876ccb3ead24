"""The rate: how many records the log has in each part of a span of time, from its index alone."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from embermq.http.fields import Instant, Model, Nothing, Timestamp, between, digits, now_us, past_us, shown_instant
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.instants import utc_text

BUCKETS: Final = 200
BUCKETS_MAX: Final = 1_000

Buckets = Annotated[int, BeforeValidator(digits), between(1, BUCKETS_MAX, "Into how many parts the time is divided.")]


class RateQuery(Model):
    since: Annotated[Instant | None, Field(description="Without it, since the log begins.")] = None
    until: Annotated[Instant | None, Field(description="Without it, until now.")] = None
    buckets: Buckets = BUCKETS


class Rate(Model):
    """`counts` are the records of the log in each part, oldest first: messages, and what clients did beside. They are
    counted by commit groups, each at its first instant. `begins` and `ends` are those of the log, if it has records."""

    since: Timestamp
    until: Timestamp
    bucket_s: float
    counts: list[int]
    begins: Timestamp | None = None
    ends: Timestamp | None = None


async def rate(call: Call[RateQuery, Nothing]) -> Answer:
    service = call.service
    query = call.query
    if service.log_directory is None:
        raise HttpRefusal(409, "a store in memory keeps no log")
    segments = [segment for segment in service.server.store.log_segments() if segment.first_timestamp_us]
    begins_us = segments[0].first_timestamp_us if segments else 0
    asked_us = past_us("until", query.until)
    until_us = now_us() if asked_us is None else asked_us
    asked_us = past_us("since", query.since)
    since_us = min(begins_us or until_us, until_us) if asked_us is None else asked_us
    if since_us > until_us:
        raise HttpRefusal(422, "since and until: expected the earlier instant first")
    span_us = max(1, until_us - since_us)
    bounds = [since_us + span_us * number // query.buckets for number in range(query.buckets + 1)]
    offsets = await service.on_thread(partial(_offsets, service.log_directory, bounds))
    return Rate(
        since=utc_text(since_us),
        until=utc_text(until_us),
        bucket_s=span_us / query.buckets / 1_000_000,
        counts=[after - before for before, after in pairwise(offsets)],
        begins=shown_instant(begins_us),
        ends=shown_instant(segments[-1].last_timestamp_us) if segments else None,
    )


def _offsets(directory: Path, bounds: list[int]) -> list[int]:
    from embermq.store.log.reader import LogReader

    return LogReader(directory).block_offsets_at(bounds)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/messages/rate",
        role=VIEWER,
        summary="How many records the log has in each part of a span of time, and how far it reaches.",
        handle=rate,
        query=RateQuery,
        body=Nothing,
        answer=Rate,
        statuses=(409, 422),
    ),
)
