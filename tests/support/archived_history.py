"""A history of retained messages in a log that was trimmed and archived, and in one that was not, served over HTTP."""

import asyncio
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from embermq.history.stretches import archived_history
from embermq.store.engines.disk import DiskStore
from embermq.store.interface import Store
from embermq.store.records import RetainedRemoved
from embermq.store.state.state import StateSettings
from support.archives import KEPT, engine_with, wait_until
from support.http_place import Place, run
from support.store_contract import Engine, expiring
from support.trimmed_log import SETTINGS, STEP_US, first_offset

START_US = 1_700_000_000_000_000
TOPICS = [f"t/{number}" for number in range(6)] + ["u", "u/a/b"]
ROUNDS = 200


class Written(NamedTuple):
    """What was published; without a payload, the retained message was removed."""

    offset: int
    timestamp_us: int
    topic: str
    payload: bytes | None
    retain: bool


def make(place: Path) -> None:
    """A data directory whose log was trimmed, its archive, and `kept`, a directory with all of the same.

    `written` is what both have.
    """
    for data, settings in (("data", SETTINGS), ("kept", KEPT)):
        engine = engine_with(place / data, str(place / ("archive" if data == "data" else "unused")), settings)
        (place / "written").write_bytes(pickle.dumps(_fill(engine)))
        engine.store.close()
    assert first_offset(place / "data") > 300, "the log was not trimmed"
    assert first_offset(place / "kept") == 1


def _fill(engine: Engine) -> list[Written]:
    """Publish, replace, clear and remove; one topic is published once, and messages that are not retained."""
    random = Random(2)
    written: list[Written] = []

    def publish(topic: str, payload: bytes, retain: bool = True, properties: bytes = b"") -> None:
        offset = engine.publish(topic, payload, retain=retain, properties=properties)
        written.append(Written(offset, engine.now_us, topic, payload, retain))

    engine.now_us = START_US
    engine.turn(STEP_US)
    publish("once", b"for ever")
    engine.commit()
    for number in range(ROUNDS):
        engine.turn(STEP_US)
        for _ in range(4):
            payload = b"" if random.random() < 0.2 else b"%d" % number + bytes(random.choice([1, 400]))
            properties = expiring(random.randrange(3 << 30, 1 << 32)) if payload and random.random() < 0.3 else b""
            publish(random.choice(TOPICS), payload, random.random() < 0.8, properties)
        if number % 15 == 0:
            topic = random.choice(TOPICS)
            offset = engine.store.append(RetainedRemoved(topic, "expired"))
            written.append(Written(offset, engine.now_us, topic, None, True))
        engine.commit()
        if number % 10 == 0:  # what is slow to archive or to trim would still be there at the end
            wait_until(lambda: engine.store.counts()["archive/pending-bytes"] == 0)
            wait_until(lambda: _has_trimmed(engine.store))
    return written


def _has_trimmed(store: Store) -> bool:
    """Whether the committer is not trimming; it goes on with that while it has no other work."""
    assert isinstance(store, DiskStore)
    return store._committer._trimming is None


def served(data: Path, test: Any, archive: str = "", state: StateSettings | None = None, **options: Any) -> None:
    """Run a test against a server on a data directory."""
    loops: list[asyncio.AbstractEventLoop] = []

    def call_soon(call: Callable[[], None]) -> None:
        loops[0].call_soon_threadsafe(call)

    async def in_loop(place: Place) -> None:
        loops.append(asyncio.get_running_loop())
        await test(place)

    trimmed = partial(archived_history, archive, data / "log") if archive else None
    store = DiskStore(data, call_soon, KEPT if state is None else replace(KEPT, state=state), trimmed=trimmed)
    run(data.parent, in_loop, store, log_directory=data / "log", **options)
