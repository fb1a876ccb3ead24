"""What the page costs: `python -m bench.page_cost [--topics N] [--rate N] [--pages N]`.

Fills a server on the disk with retained messages on topics of four levels, changes a tenth of them, and times what the
page asks for: levels of the topic tree now, as of an instant and compared, a branch, a word, the rate of the log. Then
it measures paced QoS 1 traffic alone, and beside pages that ask for levels of the tree again and again.
"""

import argparse
import subprocess
import sys
import time
from typing import Any, Final

import numpy as np

from bench.http_cost import LOAD_S_MAX, PUBLISHERS, WINDOW
from bench.machine import pin
from bench.paced import paced
from bench.packets import TOPIC_BYTES, Bytes
from bench.retained_load import WRITE, write
from bench.servers import ember, ember_path
from embermq.http.client import HttpClient

BRANCHES: Final = 40

PAGE: Final = """
import sys, time, threading
from pathlib import Path
from embermq.http.client import HttpClient
path, pages, seconds, then = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
ends_s = time.monotonic() + seconds
took_s = []
def page(number):
    with HttpClient(path, 60) as http:
        while time.monotonic() < ends_s:
            for query in ({}, {"below": "site"}, {"below": f"site/{number % 40:02}"}, {"below": "site", "as_of": then},
                          {"below": f"site/{number % 40:02}", "compare_with": then}):
                began_s = time.monotonic()
                http.get("/api/v1/tree", **query)
                took_s.append(time.monotonic() - began_s)
            time.sleep(1)
threads = [threading.Thread(target=page, args=(number,)) for number in range(pages)]
for thread in threads: thread.start()
for thread in threads: thread.join()
took_s.sort()
print(len(took_s), took_s[len(took_s) // 2], took_s[-1])
"""


def topic(number: int) -> str:
    return f"site/{number % BRANCHES:02}/{number // BRANCHES % 25:02}/m{number // (BRANCHES * 25):06}"


def frames(numbers: range) -> Bytes:
    names = [topic(number).encode() for number in numbers]
    made = WRITE.frames(np.array(names, dtype=f"S{TOPIC_BYTES}"), retain=True)
    WRITE.number(made, np.arange(len(numbers)))
    return made


def timed(http: HttpClient, name: str, path: str, **query: Any) -> Any:
    began_s = time.monotonic()
    found = http.get(path, **query)
    took_ms = (time.monotonic() - began_s) * 1000
    items = found.get("items", found.get("counts", []))
    counts = {item.get("topics") for item in items if isinstance(item, dict) and "topics" in item}
    print(f"{name}: {took_ms:.0f} ms, {len(items)} items, topics {sorted(map(str, counts))[:3]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    path = ember_path()
    assert path is not None, "`ember` is not installed"
    with ember(path, "", True, pin(False), []) as server:
        loaded = write(server, [frames(range(given.topics))], WINDOW, LOAD_S_MAX, each_once=True)
        then = f"{time.time():.6f}"
        write(server, [frames(range(0, given.topics, 10))], WINDOW, LOAD_S_MAX, each_once=True)
        print(f"{given.topics:,} retained messages, {loaded.rate:,.0f}/s, then a tenth of them again")
        socket = server.data / "control.sock"
        with HttpClient(socket, 120) as http:
            ask(http, then)
            quiet = paced(server, 1, PUBLISHERS, given.rate, given.seconds)
            pages = subprocess.Popen(
                [sys.executable, "-c", PAGE, str(socket), str(given.pages), str(given.seconds + 2), then],
                stdout=subprocess.PIPE,
                text=True,
            )
            beside = paced(server, 1, PUBLISHERS, given.rate, given.seconds)
            assert pages.stdout is not None
            count, median_s, longest_s = pages.stdout.readline().split()
            pages.wait()
    median_ms = [float(np.median(each.latency_us)) / 1000 for each in (quiet, beside)]
    p99_ms = [float(np.percentile(each.latency_us, 99)) / 1000 for each in (quiet, beside)]
    print(f"{given.pages} pages: {count} questions, median {float(median_s):.3f} s, longest {float(longest_s):.3f} s")
    print(f"paced at {given.rate:,}/s: {quiet.lost} lost alone, {beside.lost} beside the pages")
    print(f"median {median_ms[0]:.2f} ms, then {median_ms[1]:.2f} ms; p99 {p99_ms[0]:.2f} ms, then {p99_ms[1]:.2f} ms")


def ask(http: HttpClient, then: str) -> None:
    """Each question of the page, twice: the first may read what the second finds in memory."""
    branch = "site/07/12"
    for _ in range(2):
        timed(http, "first levels", "/api/v1/tree")
        timed(http, "second levels", "/api/v1/tree", below="site")
        timed(http, "a branch", "/api/v1/tree", below=branch)
        timed(http, "first levels as of then", "/api/v1/tree", as_of=then)
        timed(http, "second levels as of then", "/api/v1/tree", below="site", as_of=then)
        timed(http, "a branch as of then", "/api/v1/tree", below=branch, as_of=then)
        timed(http, "first levels compared", "/api/v1/tree", compare_with=then)
        timed(http, "second levels compared", "/api/v1/tree", below="site", compare_with=then)
        timed(http, "a branch compared", "/api/v1/tree", below=branch, compare_with=then)
        timed(http, "a word", "/api/v1/tree/search", word="m000001", limit=20)
        timed(http, "rate", "/api/v1/messages/rate")
    print(f"count of all: {http.get('/api/v1/tree/count')}")


if __name__ == "__main__":
    main()
