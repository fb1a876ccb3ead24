"""Health, statistics and settings over HTTP."""

from pathlib import Path

from embermq.http.resources.facts import Statistics
from support.http_place import Place, run
from support.transports import joined


def test_statistics(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await joined(place.server, "a", "x", "y")
        await place.set("x", "12")
        found = Statistics.model_validate((await place.get("/api/v1/statistics")).json)
        assert (found.clients, found.sessions, found.subscriptions, found.store_state) == (1, 1, 2, "ok")
        assert (found.retained_count, found.retained_bytes) == (1, 3)
        assert found.counters["clients/connected"] == 1

    run(tmp_path, test)


def test_settings_have_no_secrets(tmp_path: Path) -> None:
    settings = {"access": {"password_file": "p", "password": "s3cret", "bridge_token": "t"}, "store": {"memory": True}}

    async def test(place: Place) -> None:
        found = (await place.get("/api/v1/settings")).json
        assert found == {"settings": {"access": {"password_file": "p"}, "store": {"memory": True}}}

    run(tmp_path, test, settings=settings)


def test_a_server_that_stops_is_not_ready(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        assert (await place.get("/readyz")).json == {"status": "ready"}
        place.service.stopping.set()
        answer = await place.get("/readyz")
        assert (answer.status, answer.error) == (503, "the server is shutting down")

    run(tmp_path, test)
