"""What a restore costs beside load: `python -m bench.restore_cost [--topics N] [--rate N]`.

Retains two values on each topic of a branch over HTTP, measures paced QoS 1 traffic alone, then beside restores of the
branch to the first values and back to the second, and says how long each took.
"""

import argparse
import os
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.http_cost import PUBLISHERS
from bench.machine import pin
from bench.paced import Paced, paced
from bench.servers import ember, ember_path
from embermq.http.client import HttpClient

RESTORE_S_MAX: Final = 3.0
P99_MS_MAX: Final = 50.0
BATCH: Final = 10_000
PAUSE_S: Final = 2.0
BRANCH: Final = "branch/#"


def retain(http: HttpClient, topics: int, payload: str) -> str:
    """Retain a value on each topic; returns the instant before."""
    before = ""
    for start in range(0, topics, BATCH):
        names = [f"branch/{number // 100}/{number % 100}" for number in range(start, min(start + BATCH, topics))]
        messages = [{"topic": name, "payload": payload, "qos": 1} for name in names]
        answer = http.post("/api/v1/retained/set", {"messages": messages})
        before = before or str(answer["undo_as_of"])
    return before


def restores(path: Path, instants: list[str], done: list[tuple[float, dict[str, Any]]]) -> None:
    """Restore to each instant in turn, and note how long it took."""
    with HttpClient(path) as http:
        for instant in instants:
            time.sleep(PAUSE_S)
            began_s = time.monotonic()
            answer = http.post("/api/v1/retained/restore", {"filter": BRANCH, "as_of": instant})
            done.append((time.monotonic() - began_s, answer))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=15.0)
    given = parser.parse_args()
    path = ember_path()
    assert path is not None, "`ember` is not installed"
    with ember(path, "", True, pin(False), []) as server:
        socket_path = server.data / "control.sock"
        with HttpClient(socket_path) as http:
            retain(http, given.topics, "first")
            first = retain(http, given.topics, "second")
        second = f"{time.time():.6f}"
        time.sleep(PAUSE_S)
        show("alone", paced(server, 1, PUBLISHERS, given.rate, given.seconds))
        done: list[tuple[float, dict[str, Any]]] = []
        restoring = threading.Thread(target=restores, args=(socket_path, [first, second], done))
        restoring.start()
        beside = paced(server, 1, PUBLISHERS, given.rate, given.seconds)
        restoring.join()
    for took_s, answer in done:
        is_met = took_s <= RESTORE_S_MAX and answer["set"] == given.topics
        print(f"restore of {answer['set']:,} topics: {took_s:.2f} s {'(met)' if is_met else '(missed)'}")
    p99_ms = show("beside it", beside)
    print(f"p99 below {P99_MS_MAX:.0f} ms {'(met)' if p99_ms < P99_MS_MAX else '(missed)'}")
    print(f"load of the machine {os.getloadavg()[0]:.1f}")


def show(what: str, measured: Paced) -> float:
    median, p99 = (float(np.percentile(measured.latency_us, share)) / 1000 for share in (50, 99))
    print(f"paced {what}: {measured.lost} lost, median {median:.2f} ms, p99 {p99:.2f} ms", flush=True)
    return p99


if __name__ == "__main__":
    main()
