"""What questions over HTTP cost beside load: `python -m bench.http_cost [--topics N] [--rate N]`.

Fills a server on the disk with retained messages, measures paced QoS 1 traffic alone, then beside the retained set as
of now over HTTP (whole, as NDJSON, read by another process, which does little or much with its lines), and counts
what is lost. Then it asks for the metrics many times and divides the server's CPU time.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import numpy as np

from bench.machine import pin
from bench.paced import Paced, paced
from bench.packets import TOPIC_BYTES, Bytes, topic_name
from bench.retained_load import WRITE, write
from bench.servers import Server, ember, ember_path
from embermq.http.client import HttpClient

AS_OF_S_MAX: Final = 15.0
SLOWER_MAX: Final = 2.0
SCRAPE_MS_MAX: Final = 5.0
SCRAPES: Final = 200
PUBLISHERS: Final = 50
LOAD_S_MAX: Final = 600.0
WINDOW: Final = 1_000

READER: Final = """
import http.client, json, socket, sys, time
path, instant, kind = sys.argv[1:]
sys.stdin.readline()
began_s = time.monotonic()
connection = http.client.HTTPConnection("server")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
connection.request("GET", f"/api/v1/retained?as_of={instant}", headers={"Accept": "application/x-ndjson"})
response = connection.getresponse()
count = 0
rest = b""
if kind == "slow":
    count = sum(1 for line in response if json.loads(line))
while data := response.read1(1 << 20):
    if kind == "parses":
        *lines, rest = (rest + data).split(b"\\n")
        count += sum(1 for line in lines if json.loads(line))
    else:
        count += data.count(b"\\n")
print(count, time.monotonic() - began_s, time.process_time(), flush=True)
"""
READERS: Final = {
    "counts": "that counts lines, as if it were on another machine",
    "parses": "that parses every line",
    "slow": "that asks http.client for one line after the other and parses it",
}
"""The readers, from little to much work on the same cores."""


def topic_names(count: int) -> list[str]:
    """Topics that the paced traffic does not have."""
    return [topic_name(index).replace("plant", "state", 1) for index in range(count)]


def frames(count: int) -> Bytes:
    """Retained messages, one on each of these topics, in their order."""
    names = [name.encode() for name in topic_names(count)]
    made = WRITE.frames(np.array(names, dtype=f"S{TOPIC_BYTES}"), retain=True)
    WRITE.number(made, np.arange(count))
    return made


def as_of(server: Server, rate: int, seconds: float, kind: str) -> tuple[Paced, int, float, float]:
    """Paced traffic while another process reads the retained set as of now."""
    path = server.data / "control.sock"
    now = f"{time.time():.6f}"
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(path), now, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None and reader.stdout is not None
    time.sleep(2)  # until it has started
    reader.stdin.write("go\n")
    reader.stdin.flush()
    beside = paced(server, 1, PUBLISHERS, rate, seconds)
    count, took_s, cpu_s = reader.stdout.readline().split()
    reader.wait()
    return beside, int(count), float(took_s), float(cpu_s)


def scrape_ms(path: Path) -> tuple[float, float]:
    """The CPU time of the server for one scrape, and how long an answer took, in ms."""
    with HttpClient(path) as http:
        process = http.get("/api/v1/statistics")["process"]
        stat = Path(f"/proc/{process}/stat")

        def ticks() -> int:
            fields = stat.read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        before, began_s = ticks(), time.monotonic()
        for _ in range(SCRAPES):
            http.text("/metrics")
        took_s = time.monotonic() - began_s
        return (ticks() - before) * 10.0 / SCRAPES, took_s * 1000 / SCRAPES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=4_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    path = ember_path()
    assert path is not None, "`ember` is not installed"
    with ember(path, "", True, pin(False), []) as server:
        loaded = write(server, [frames(given.topics)], WINDOW, LOAD_S_MAX, each_once=True)
        print(f"{given.topics:,} retained messages, {loaded.rate:,.0f}/s")
        quiet = paced(server, 1, PUBLISHERS, given.rate, given.seconds)
        _show("alone", quiet)
        for kind, description in READERS.items():
            beside, count, took_s, cpu_s = as_of(server, given.rate, given.seconds, kind)
            is_complete = count >= given.topics and took_s <= AS_OF_S_MAX
            print(f"as of now, a reader {description}: {count:,} in {took_s:.1f} s {_verdict(is_complete)}")
            print(f"  the reader took {100 * cpu_s / took_s:.0f} % of a core")
            slower = _show("beside it", beside) / median_ms(quiet)
            print(f"  lost {_verdict(beside.lost == 0)}, {slower:.1f} times the median {_verdict(slower < SLOWER_MAX)}")
        cpu_ms, answer_ms = scrape_ms(server.data / "control.sock")
    print(f"a scrape: {cpu_ms:.2f} ms of CPU, answered in {answer_ms:.2f} ms {_verdict(cpu_ms < SCRAPE_MS_MAX)}")


def median_ms(measured: Paced) -> float:
    return float(np.median(measured.latency_us)) / 1000


def _show(what: str, measured: Paced) -> float:
    median = median_ms(measured)
    print(f"paced {what}: {measured.lost} lost, median {median:.2f} ms", flush=True)
    return median


def _verdict(is_met: bool) -> str:
    return "(met)" if is_met else "(missed)"


if __name__ == "__main__":
    main()
