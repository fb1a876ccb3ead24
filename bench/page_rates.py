"""How quick the page is with many topics under load: `PYTHONPATH=tests python -m bench.page_rates`; see `--help`.

Writes retained messages into a log, each topic twice, some minutes apart, starts a server on it, publishes at a steady
rate, and opens the page in Chromium: the time until the tree is there, from a click until a branch is open, and from a
move of the slider until the open branches show the values of then. A figure beyond its bound is marked.
"""

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from playwright.sync_api import Page

from embermq.protocol.packets import Publish
from support.page.browser import MISSING, Opened, browser_path, driver, started
from support.page.plant import MINUTE_US, open_past
from support.page.served import PageServer

TREE_MS_MAX: Final = 2_000
CLICK_MS_MAX: Final = 200
SLIDER_MS_MAX: Final = 1_000
FIRST_LEVELS: Final = 10
BRANCH_TOPICS: Final = 100
BATCH: Final = 5_000
THEN: Final = "then"

OPEN: Final = """async (topic) => {
    const began = performance.now();
    document.querySelector(`.name[title="${topic}"]`).closest(".row").querySelector(".twist").click();
    while (!document.querySelector(`.name[title^="${topic}/"]`)) await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""
CLOSE: Final = """async (topic) => {
    document.querySelector(`.name[title="${topic}"]`).closest(".row").querySelector(".twist").click();
    while (document.querySelector(`.name[title^="${topic}/"]`)) await new Promise(requestAnimationFrame);
}"""
MOVE: Final = """async ([at, then]) => {
    const began = performance.now();
    location.hash = `#topics?at=${at}`;
    const isDone = () => {
        const values = [...document.querySelectorAll("#tree .row .value")].map((one) => one.textContent);
        const shown = values.filter(Boolean);
        return shown.length > 0 && shown.every((value) => value === then);
    };
    while (!isDone()) await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""

BACK: Final = """async (then) => {
    location.hash = "#topics";
    const isThen = () => [...document.querySelectorAll("#tree .row .value")].some((one) => one.textContent === then);
    while (isThen()) await new Promise(requestAnimationFrame);
}"""


def topic_of(number: int, topics: int) -> str:
    branches = max(1, topics // FIRST_LEVELS // BRANCH_TOPICS)
    first, rest = divmod(number, branches * BRANCH_TOPICS)
    return f"site-{first}/line-{rest // BRANCH_TOPICS:02}/sensor-{rest % BRANCH_TOPICS}"


def write_topics(directory: Path, topics: int) -> None:
    engine = open_past(directory, time.time_ns() // 1000 - 20 * MINUTE_US)
    for payload in (THEN, "now"):
        engine.turn(9 * MINUTE_US)
        for number in range(topics):
            engine.store.append_publish(Publish(topic_of(number, topics), payload.encode(), 1, True), "writer")
            if number % BATCH == 0:
                engine.commit()
        engine.commit()
    engine.store.close()


@contextmanager
def publishing(server: PageServer, topics: int, rate: int) -> Iterator[list[int]]:
    """Retained messages at a rate, on topics by chance; yields how many there were."""
    client = server.client("load")
    is_over = threading.Event()
    sent = [0]

    def publish() -> None:
        random = Random(1)
        began_s = time.monotonic()
        while not is_over.is_set():
            due = int((time.monotonic() - began_s) * rate)
            while sent[0] < due:
                client.publish(topic_of(random.randrange(topics), topics), str(sent[0]), 0, True)
                sent[0] += 1
            is_over.wait(0.01)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()
        client.disconnect()
        client.loop_stop()


def show(name: str, values_ms: list[float], most_ms: int) -> None:
    middle, worst = statistics.median(values_ms), max(values_ms)
    mark = "" if worst <= most_ms else f"  beyond {most_ms} ms"
    print(f"{name:<44} median {middle:7.0f} ms   worst {worst:7.0f} ms   of {len(values_ms)}{mark}", flush=True)


def measure(page: Page, opened: Opened, rounds: int) -> None:
    tree_ms: list[float] = []
    for _ in range(3):
        began_s = time.monotonic()
        opened.go("#topics?topic=site-0")
        page.wait_for_selector('#tree .row .name[title="site-9"]')
        tree_ms.append((time.monotonic() - began_s) * 1000)
        page.goto("about:blank")
    show("page opened until the tree is there", tree_ms, TREE_MS_MAX)
    opened.go("#topics?topic=site-0")
    page.wait_for_selector('#tree .row .name[title="site-9"]')
    page.evaluate(OPEN, "site-0")
    clicks_ms: list[float] = []
    for number in range(rounds):
        clicks_ms.append(page.evaluate(OPEN, f"site-0/line-{number % 10:02}"))
        page.evaluate(CLOSE, f"site-0/line-{number % 10:02}")
    show("click until the branch is open", clicks_ms, CLICK_MS_MAX)
    page.evaluate(OPEN, "site-0/line-00")
    moves_ms: list[float] = []
    for number in range(rounds):
        at = datetime.fromtimestamp(time.time() - 300 - 60 * 5 - number, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        moves_ms.append(page.evaluate(MOVE, [at, THEN]))
        page.evaluate(BACK, THEN)
    show("slider moved until the values are of then", moves_ms, SLIDER_MS_MAX)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second beside it")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    if browser_path() is None:
        raise SystemExit(MISSING)
    with tempfile.TemporaryDirectory() as folder, driver() as playwright:
        directory = Path(folder)
        write_topics(directory / "data", options.topics)
        with PageServer(directory) as server, started(playwright, directory / "profile") as context:
            page = context.new_page()
            opened = Opened(page, server)
            with publishing(server, options.topics, options.rate) as sent:
                began_s = time.monotonic()
                measure(page, opened, options.rounds)
                rate = sent[0] / (time.monotonic() - began_s)
            print(
                f"{options.topics} topics, {rate:.0f} messages/s beside, load of the machine {os.getloadavg()[0]:.1f}"
            )


if __name__ == "__main__":
    main()
