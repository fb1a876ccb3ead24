"""Reads of the store for requests: none on the event loop, and none that nobody waits for."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.history import rebuilt
from embermq.instants import utc_text
from embermq.store.errors import NotWanted
from embermq.store.history.pieces import HistoryRead
from embermq.store.history.reader import HistoryReader
from embermq.store.interface import RetainedChange
from embermq.store.log.lookup import Records
from embermq.store.state.history import History
from embermq.store.state.rocks import Rocks
from support.archived_history import ROUNDS, START_US, served
from support.http_place import Place
from support.trimmed_log import STEP_US

NEW = utc_text(START_US + (ROUNDS - 3) * STEP_US)
OLD = utc_text(START_US + 20 * STEP_US)
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


@pytest.mark.parametrize("as_of", [None, NEW, OLD], ids=["now", "in the log", "in the archive"])
def test_the_event_loop_reads_no_state(place_of_all: Path, monkeypatch: pytest.MonkeyPatch, as_of: str | None) -> None:
    readers: set[str] = set()

    def noted(read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            readers.add(threading.current_thread().name)
            return read(*given)

        return call

    async def test(place: Place) -> None:
        for name in ("get", "get_many", "item_lists", "items_from", "keys_from", "iterator"):
            monkeypatch.setattr(Rocks, name, noted(getattr(Rocks, name)))
        for name, query in QUESTIONS:
            given = query | ({"as_of": as_of} if as_of and name.startswith(("retained", "tree")) else {})
            if as_of is None or ("as_of" in given and name != "retained/history"):
                answer = await place.get(f"/api/v1/{name}", **given)
                assert answer.status == 200, (name, answer.json)
        assert readers and threading.current_thread().name not in readers, readers
        monkeypatch.undo()

    served(place_of_all / "data", test, str(place_of_all / "archive"))


def test_what_a_client_gives_up_is_not_begun(place_of_all: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    reads: list[HistoryRead] = []
    asked: list[str] = []
    run, changes_of = HistoryReader.run, History.changes_of

    def counted(self: HistoryReader, read: HistoryRead, call: Callable[[], object]) -> None:
        reads.append(read)
        run(self, read, call)

    def held(self: History, log: Records, topic_name: str, after_offset: int, limit: int) -> list[RetainedChange]:
        asked.append(topic_name)
        assert go_on.wait(30)
        return changes_of(self, log, topic_name, after_offset, limit)

    async def test(place: Place) -> None:
        first, second, third = (
            asyncio.create_task(place.get("/api/v1/retained/history", topic=topic)) for topic in ("t/1", "t/2", "t/3")
        )
        while len(reads) < 3:
            await asyncio.sleep(0.01)
        second.cancel()
        while not any(read.is_cancelled for read in reads):
            await asyncio.sleep(0.01)
        go_on.set()
        assert (await first).status == (await third).status == 200
        assert {"t/1", "t/3"} == set(asked)

    monkeypatch.setattr(HistoryReader, "run", counted)
    monkeypatch.setattr(History, "changes_of", held)
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
