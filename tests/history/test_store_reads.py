"""Reads of the store for requests: none on the event loop, and none that nobody waits for."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import embermq.history.tree  # noqa: F401  # it takes `rest` when it is loaded: not while a test has another in its place
from embermq.history import rebuilt
from embermq.http.resources.topics import changes
from embermq.http.store_reads import answered, on_store_thread
from embermq.instants import instant_us, utc_text
from embermq.store.errors import NotWanted
from embermq.store.history.pieces import RetainedSpan
from embermq.store.interface import Store
from embermq.store.state.state import StateSettings
from support.archived_history import ROUNDS, START_US, served
from support.http_place import Answered, Place
from support.state_samples import WrappedDatabase
from support.trimmed_log import STEP_US

NEW = utc_text(START_US + (ROUNDS - 3) * STEP_US)
OLD = utc_text(START_US + 20 * STEP_US)
LATER = utc_text(START_US + 110 * STEP_US)
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("retained", {}),
    ("retained", {"filter": "t/+", "limit": 2}),
    ("retained/message", {"topic": "once"}),
    ("retained/history", {"topic": "t/1", "limit": 1_000}),
    ("retained/history", {"topic": "t/1", "limit": 2}),
    ("tree", {"below": "t"}),
    ("tree", {"compare_with": NEW}),
    ("tree/count", {}),
    ("tree/search", {"word": "t/"}),
    ("tree/search", {"filter": "t/#"}),
    ("messages", {"limit": 10}),
    ("topic/values", {"topic": "t/1"}),
]


class NotedDatabase(WrappedDatabase):
    """Remembers which threads have read it."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[str] = set()

    def __getattr__(self, name: str) -> object:
        if name in ("get", "items", "iter", "keys"):
            self.readers.add(threading.current_thread().name)
        return super().__getattr__(name)


@pytest.mark.parametrize("as_of", [None, NEW, OLD], ids=["now", "in the log", "in the archive"])
def test_the_event_loop_reads_no_state(place_of_all: Path, as_of: str | None) -> None:
    database = NotedDatabase()

    async def test(place: Place) -> None:
        database.readers.clear()  # the start reads it
        for name, query in QUESTIONS:
            if as_of is None and name == "retained/message":
                continue  # one get, which a SUBSCRIBE takes on the event loop as well
            given = query | ({"as_of": as_of} if as_of and name.startswith(("retained", "tree")) else {})
            if as_of is None or ("as_of" in given and name != "retained/history"):
                answer = await place.get(f"/api/v1/{name}", **given)
                assert answer.status == 200, (name, answer.json)
        assert database.readers and threading.current_thread().name not in database.readers, database.readers

    state = StateSettings(open_database=database.open)
    served(place_of_all / "data", test, str(place_of_all / "archive"), state)


def test_what_a_client_gives_up_is_not_begun(place_of_all: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, given_up = threading.Event(), asyncio.Event()
    asked: list[str] = []
    begun: list[str] = []

    async def noted(store: Store, call: Callable[[], Any]) -> Any:
        assert isinstance(call, partial)
        topic_name = call.args[0]
        asked.append(topic_name)

        def held() -> Any:
            begun.append(topic_name)
            assert go_on.wait(60)
            return call()

        try:
            return await on_store_thread(store, held)
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def test(place: Place) -> None:
        async def ask(topic: str) -> asyncio.Task[Answered]:
            task = asyncio.create_task(place.get("/api/v1/retained/history", topic=topic))
            while topic not in asked:
                await asyncio.sleep(0.01)
            return task

        first, second, third = [await ask(topic) for topic in ("t/1", "t/2", "t/3")]
        second.cancel()
        await given_up.wait()
        go_on.set()
        assert (await first).status == (await third).status == 200
        assert {"t/1", "t/3"} == set(begun)

    monkeypatch.setattr(changes, "on_store_thread", noted)
    try:
        served(place_of_all / "kept", test)
    finally:
        go_on.set()


@pytest.mark.parametrize(
    "path",
    ["retained?", "retained/message?topic=once&", "tree?below=t&", "tree/search?word=t&", "tree/search?filter=%23&"],
)
def test_the_past_is_not_made_for_a_client_that_is_gone(
    place_of_all: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    begun, stopped, never = asyncio.Event(), asyncio.Event(), threading.Event()

    async def test(place: Place) -> None:
        loop = asyncio.get_running_loop()

        def held(is_wanted: Callable[[], bool]) -> None:
            loop.call_soon_threadsafe(begun.set)
            for _ in range(3_000):
                if not is_wanted():
                    loop.call_soon_threadsafe(stopped.set)
                    raise NotWanted
                never.wait(0.01)

        with monkeypatch.context() as patched:
            patched.setattr(rebuilt, "rest", held)
            asked = asyncio.create_task(place.get(f"/api/v1/{path}as_of={OLD}"))
            await begun.wait()
            asked.cancel()
            await stopped.wait()
        assert (await place.get(f"/api/v1/{path}as_of={OLD}")).status == 200

    served(place_of_all / "data", test, str(place_of_all / "archive"))


def test_requests_and_subscriptions_share_what_was_made(place_of_all: Path) -> None:
    """What `$asof` has had made answers a request, without the archive."""

    async def test(place: Place) -> None:
        reads = place.server.store.history.reads()
        assert reads is not None
        span = RetainedSpan("#", instant_us(OLD), 1 << 62, "", 1_000, 1 << 20)
        found = await answered(partial(reads.read_retained, span=span, is_archived=True))
        assert found.is_done and found.retained
        (place_of_all / "archive").rename(place_of_all / "away")
        answer = await place.get("/api/v1/retained", as_of=OLD)
        assert [item["topic"] for item in answer.json["items"]] == [each.topic_name for each in found.retained]
        assert len(list((place_of_all / "data" / "archive-cache").glob("as-of-*"))) == 1

    served(place_of_all / "data", test, str(place_of_all / "archive"))


def test_what_was_made_is_answered_while_more_is_made(place_of_all: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = asyncio.Event(), threading.Event()
    rest = rebuilt.rest

    async def test(place: Place) -> None:
        loop = asyncio.get_running_loop()
        first = (await place.get("/api/v1/tree", as_of=OLD)).json

        def held(is_wanted: Callable[[], bool]) -> None:
            loop.call_soon_threadsafe(begun.set)
            while not go_on.wait(0.001):
                assert is_wanted()
            rest(is_wanted)

        with monkeypatch.context() as patched:
            patched.setattr(rebuilt, "rest", held)
            later = asyncio.create_task(place.get("/api/v1/retained", as_of=LATER))
            await begun.wait()
            for path in ("retained", "tree?below=t", "tree/search?word=t", "retained/message?topic=once"):
                query = path + ("&" if "?" in path else "?") + f"as_of={OLD}"
                assert (await place.get(f"/api/v1/{query}")).status == 200, path
            assert not later.done()
            go_on.set()
            assert (await later).status == 200
        assert (await place.get("/api/v1/tree", as_of=OLD)).json == first

    try:
        served(place_of_all / "data", test, str(place_of_all / "archive"))
    finally:
        go_on.set()
