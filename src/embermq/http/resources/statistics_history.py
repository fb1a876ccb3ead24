"""The last hour of a few numbers of the server, sampled into a bounded ring, for plots."""

import asyncio
import os
import time
from pathlib import Path
from typing import Annotated, Final, final

from pydantic import BeforeValidator, Field

from embermq.http.fields import Model, Nothing, Timestamp, between, digits, now_us
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.resources.metrics import DROPPED, SessionSums
from embermq.http.service import SAMPLES_MAX, Service
from embermq.instants import utc_text
from embermq.store.interface import StoreError
from embermq.transport.capacity import used_bytes

EVERY_S: Final = 10.0
MINUTES_MAX: Final = int(SAMPLES_MAX * EVERY_S / 60)

Minutes = Annotated[int, BeforeValidator(digits), between(1, MINUTES_MAX, "How many minutes back.", 60)]


class HistoryQuery(Model):
    minutes: Minutes = MINUTES_MAX


class Sample(Model):
    """Numbers of one interval, which ended at `timestamp`. Rates are PUBLISH packets, or bytes on streams, a second.

    `queued` are messages owed to sessions and share groups. `dropped` counts the messages that were dropped in the
    interval, by reason. Of the commit groups of the interval, half and 99 of 100 became durable within `commit_p50_ms`
    and `commit_p99_ms` (a bound of the histogram); left out if there were none.
    """

    timestamp: Timestamp
    received_rate: float
    sent_rate: float
    received_bytes_rate: float
    sent_bytes_rate: float
    connections: int
    queued: int
    dropped: dict[str, int]
    commit_p50_ms: float | None = None
    commit_p99_ms: float | None = None
    memory_bytes: int
    log_bytes: int
    disk_free_bytes: Annotated[int | None, Field(description="Left out for a server in memory.")] = None


class StatisticsHistory(Model):
    """Oldest first."""

    items: list[Sample]


@final
class Sampler:
    """Takes samples of one server, each of the time since the one before."""

    __slots__ = ("_commits", "_dropped", "_service", "_taken_s", "_traffic")

    def __init__(self, service: Service) -> None:
        self._service: Final = service
        self._taken_s = time.monotonic()
        self._traffic = self._traffic_now()
        self._dropped = self._dropped_now()
        self._commits = self._commits_now()

    async def run(self) -> None:
        """Sample until this is cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                self._service.samples.append(await self.sample())
            except (OSError, StoreError):
                continue  # as of the next one
            except Exception as error:
                self._service.server.bug(error)
                return

    async def sample(self) -> Sample:
        """One sample."""
        service = self._service
        sums = SessionSums()
        await sums.add_all(service)
        directory = service.log_directory
        free_bytes = None if directory is None else await service.on_thread(lambda: _free_bytes(directory))
        now_s = time.monotonic()
        elapsed_s = max(0.001, now_s - self._taken_s)
        traffic, dropped, commits = self._traffic_now(), self._dropped_now(), self._commits_now()
        rates = [round((new - old) / elapsed_s, 1) for new, old in zip(traffic, self._traffic, strict=True)]
        counts = [new - old for new, old in zip(commits, self._commits, strict=True)] if commits else []
        drops = {name: count - self._dropped.get(name, 0) for name, count in dropped.items()}
        self._taken_s, self._traffic, self._dropped, self._commits = now_s, traffic, dropped, commits
        core = service.server.core
        return Sample(
            timestamp=utc_text(now_us()),
            received_rate=rates[0],
            sent_rate=rates[1],
            received_bytes_rate=rates[2],
            sent_bytes_rate=rates[3],
            connections=core.counters.clients_connected,
            queued=sums.owed + sum(group.owed() for group in core.share_groups()),
            dropped={name: count for name, count in drops.items() if count},
            commit_p50_ms=self._within_ms(counts, 0.5),
            commit_p99_ms=self._within_ms(counts, 0.99),
            memory_bytes=used_bytes(),
            log_bytes=sum(segment.size_bytes for segment in service.server.store.history.log_segments()),
            disk_free_bytes=free_bytes,
        )

    def _traffic_now(self) -> tuple[int, int, int, int]:
        counters = self._service.server.core.counters
        return counters.publish_received, counters.publish_sent, counters.bytes_received, counters.bytes_sent

    def _dropped_now(self) -> dict[str, int]:
        values = self._service.server.core.counter_values()
        return {name.removeprefix(DROPPED): value for name, value in values.items() if name.startswith(DROPPED)}

    def _commits_now(self) -> list[float]:
        """How many groups took no longer than each bound of the histogram."""
        times = self._service.server.store.commit_times()
        return [] if times is None else [count for _, count in times.buckets()]

    def _within_ms(self, counts: list[float], part: float) -> float | None:
        """The bound of the histogram within which a part of the groups became durable; None if there were none."""
        times = self._service.server.store.commit_times()
        if times is None or not counts or not counts[-1]:
            return None
        bounds = [float(bound) * 1000 for bound, _ in times.buckets()[:-1]]
        for bound_ms, count in zip(bounds, counts, strict=False):
            if count >= part * counts[-1]:
                return bound_ms
        return 2 * bounds[-1]  # longer than any bound


def _free_bytes(directory: Path) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize


async def history(call: Call[HistoryQuery, Nothing]) -> Answer:
    since = utc_text(now_us() - call.query.minutes * 60_000_000)
    return StatisticsHistory(items=[sample for sample in call.service.samples if sample.timestamp >= since])


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/statistics/history",
        role=VIEWER,
        summary="The last hour of a few numbers of the server, one sample every 10 seconds.",
        handle=history,
        query=HistoryQuery,
        body=Nothing,
        answer=StatisticsHistory,
    ),
)
