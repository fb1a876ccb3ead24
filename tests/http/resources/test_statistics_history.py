"""The last hour of the statistics: samples of what happened in between, in a bounded ring."""

from pathlib import Path

from embermq.http.resources.statistics_history import Sampler, StatisticsHistory
from embermq.http.service import SAMPLES_MAX
from embermq.protocol.packets import Publish
from embermq.store.interface import CommitTimes
from support.http_place import Place, run
from support.stores import ScriptedStore
from support.transports import joined


def test_a_sample_has_what_happened_since_the_one_before(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        assert (await place.get("/api/v1/statistics/history")).json == {"items": []}
        sampler = Sampler(place.service)
        publisher = await joined(place.server, "p")
        await publisher.send(*(Publish("a", b"1") for _ in range(10)))
        place.server.core.counters.dropped_queue_full += 3
        for _ in range(2):
            place.service.samples.append(await sampler.sample())
        items = (await place.get("/api/v1/statistics/history", minutes=1)).json["items"]
        first, second = StatisticsHistory.model_validate({"items": items}).items
        assert first.received_rate > 0 and second.received_rate == 0
        assert (first.dropped, second.dropped) == ({"queue-full": 3}, {})
        assert first.connections == 1 and first.memory_bytes > 0
        assert "commit_p50_ms" not in items[0] and "disk_free_bytes" not in items[0]
        for _ in range(SAMPLES_MAX):
            place.service.samples.append(first)
        assert len(place.service.samples) == SAMPLES_MAX
        assert (await place.get("/api/v1/statistics/history", minutes=61)).status == 400

    run(tmp_path, test)


def test_commit_times_are_bounds_of_the_histogram(tmp_path: Path) -> None:
    class Timed(ScriptedStore):
        def __init__(self) -> None:
            super().__init__(late=False)
            self.times = CommitTimes()

        def commit_times(self) -> CommitTimes:
            return self.times

    store = Timed()

    async def test(place: Place) -> None:
        sampler = Sampler(place.service)
        for _ in range(90):
            store.times.add(1, 0.0015)
        for _ in range(10):
            store.times.add(1, 0.15)
        sample = await sampler.sample()
        assert (sample.commit_p50_ms, sample.commit_p99_ms) == (2.0, 200.0)
        store.times.add(1, 60.0)
        assert (await sampler.sample()).commit_p50_ms == 10_000.0
        assert (await sampler.sample()).commit_p50_ms is None

    run(tmp_path, test, store, log_directory=tmp_path)
