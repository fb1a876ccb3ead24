"""A plant: what its machines have published over some hours, written into a log with the instants of then."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from embermq.protocol.packets import Publish
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.interface import Store
from support.store_contract import Engine

MINUTE_US = 60_000_000
LINES = ("line-1", "line-2", "line-3")
MACHINES = ("press", "robot", "oven", "packer")
SITES = ("hamburg", "lyon")

Message = tuple[str, str, str]
"""Topic name, payload, client id."""


def open_past(directory: Path, begins_us: int) -> Engine:
    """A store whose clock begins at an instant of the past."""

    def opener(call_soon: Callable[[Callable[[], None]], None], budgets: tuple[RetainedBudget, ...]) -> Store:
        return DiskStore(directory, call_soon, JournalSettings(durability="os"))

    engine = Engine(opener)
    engine.now_us = begins_us
    engine.turn()
    return engine


def write_past(directory: Path, now_us: int, minutes: int = 360) -> None:
    """The last hours of the plant, up to an instant."""
    engine = open_past(directory, now_us - minutes * MINUTE_US)
    random = Random(7)
    for minute in range(minutes):
        engine.turn(MINUTE_US)
        for topic_name, payload, client_id in minute_of(minute, minutes, random):
            engine.store.append_publish(Publish(topic_name, payload.encode(), 1, True), client_id)
        engine.commit()
    engine.store.close()


def minute_of(minute: int, minutes: int, random: Random) -> Iterator[Message]:
    """What is published in one minute: most machines say something, and sometimes an alarm comes or goes."""
    left = minutes - minute
    for site in SITES:
        for number, line in enumerate(LINES):
            if site == "lyon" and number == 2 and minute < minutes // 2:
                continue  # this line was built later
            base = f"plant/{site}/{line}"
            is_stopped = site == "hamburg" and line == "line-2" and 40 < left < 95
            activity = 0.3 + 0.7 * abs(math.sin((minute + 40 * number) / 57))
            for machine in MACHINES:
                is_quiet = random.random() > activity and (number, machine) != (0, "press")
                if minute and is_quiet:
                    continue
                for _ in range(8 if is_stopped and left > 88 else 1):  # they report much when they are stopped
                    yield from machine_minute(f"{base}/{machine}", minute, is_stopped, random)
            if minute % 10 == 0:
                yield f"{base}/order", order(site, number, minute // 40), f"mes-{site}"
            if minute == minutes - 95 and site == "hamburg" and line == "line-2":
                yield (
                    f"alarms/{site}/{line}/emergency-stop",
                    json.dumps({"level": "critical", "since": minute}),
                    "safety",
                )
            if minute == minutes - 40 and site == "hamburg" and line == "line-2":
                yield f"alarms/{site}/{line}/emergency-stop", "", "safety"
    if minute % 5 == 0:
        yield "weather/hamburg/outside", f"{11 + 4 * math.sin(minute / 90):.1f}", "weather"
        yield "energy/grid/power", f"{820 + 140 * math.sin(minute / 33) + random.gauss(0, 12):.0f}", "meter-1"
    if minute == minutes - 20:
        yield (
            "alarms/lyon/line-1/oven-hot",
            json.dumps({"level": "warning", "limit": 240, "value": 243.5}),
            "oven-watch",
        )


def machine_minute(base: str, minute: int, is_stopped: bool, random: Random) -> Iterator[Message]:
    client_id = base.removeprefix("plant/").replace("/", "-")
    hot = 235.0 if base.endswith("oven") else 38.0
    cooling = 0.55 if is_stopped else 1.0
    temperature = hot * cooling + 3 * math.sin(minute / 17 + len(base)) + random.gauss(0, 0.4)
    yield f"{base}/temperature", f"{temperature:.1f}", client_id
    if minute % 3 == 0:
        status = {
            "state": "stopped" if is_stopped else "running",
            "speed": 0 if is_stopped else round(92 + random.gauss(0, 2), 1),
            "pieces": minute * 7,
            "motor": {
                "current": 0.1 if is_stopped else round(4.2 + random.gauss(0, 0.2), 2),
                "hours": 1200 + minute // 60,
            },
        }
        yield f"{base}/status", json.dumps(status), client_id
    if minute % 60 == 0:
        yield f"{base}/firmware", "4.2.1", client_id


def order(site: str, line: int, number: int) -> str:
    return json.dumps(
        {"order": f"{site[:1].upper()}{line + 1}-{1000 + number}", "product": "valve 3/4", "wanted": 1200}
    )
