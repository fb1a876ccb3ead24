"""What history subscriptions cost beside load: `python -m bench.history_cost [--messages N] [--rate N]`.

Fills a server on the disk with retained QoS 1 messages, one topic each. Measures paced QoS 1 traffic alone, then beside
mosquitto_sub, which replays all of them at QoS 1, then beside one that asks for the retained set as of now. Checks that
each message comes once, and the replay in order.
"""

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np

from bench.http_cost import LOAD_S_MAX, PUBLISHERS, WINDOW, frames, topic_names
from bench.machine import pin
from bench.paced import Paced, paced
from bench.retained_load import write
from bench.servers import Server, ember, ember_path


def beside(server: Server, topic_filter: str, count: int, rate: int, seconds: float) -> tuple[Paced, list[str], float]:
    """Paced traffic beside a mosquitto_sub that ends after `count` messages; what it printed, and how long it took."""
    place = Path(server.data) / "history.txt"
    command = ["mosquitto_sub", "-p", str(server.port), "-q", "1", "-t", topic_filter, "-C", str(count), "-F", "%t"]
    with place.open("w") as out:
        began_s = time.monotonic()
        reader = subprocess.Popen(command, stdout=out)
        measured = paced(server, 1, PUBLISHERS, rate, seconds)
        reader.wait(timeout=LOAD_S_MAX)
        took_s = time.monotonic() - began_s
    return measured, place.read_text().splitlines(), took_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    path = ember_path()
    assert path is not None, "`ember` is not installed"
    count: int = given.messages
    with ember(path, "", True, pin(False), []) as server:
        loaded = write(server, [frames(count)], WINDOW, LOAD_S_MAX, each_once=True)
        print(f"{count:,} retained messages, {loaded.rate:,.0f}/s", flush=True)
        _show("alone", paced(server, 1, PUBLISHERS, given.rate, given.seconds))
        measured, names, took_s = beside(server, "$replay/../state/#", count, given.rate, given.seconds)
        _show("beside $replay", measured)
        is_in_order = names == topic_names(count)  # one connection has written them, so the log has this order
        print(f"$replay at QoS 1: {len(names):,} in {took_s:.1f} s, each once and in order: {is_in_order}", flush=True)
        measured, names, took_s = beside(server, "$asof/now/state/#", count, given.rate, given.seconds)
        _show("beside $asof", measured)
        is_each_once = len(set(names)) == len(names) == count
        print(f"$asof: {len(names):,} in {took_s:.1f} s, each once: {is_each_once}", flush=True)


def _show(what: str, measured: Paced) -> None:
    median_ms, high_ms = np.percentile(measured.latency_us, [50, 99]) / 1000
    print(f"paced {what}: {measured.lost} lost, median {median_ms:.2f} ms, p99 {high_ms:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
