"""How old a message is when it can be read in `messages`: `python -m bench.spark_lag`.

A real server, `ember pipeline run --continuous` with all its tables, and a publisher that keeps to its rate. A commit
of the table tells when its rows could be read (the commit file's time) and how old the oldest of them was then (its
statistics).
Needs the `spark` extra and Java.
"""

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from bench.load import open_client

TOPICS: Final = 200
TICK_S: Final = 0.01
CATCH_UP_S_MAX: Final = 180.0


def start(arguments: list[str], ready: str) -> tuple["subprocess.Popen[str]", str]:
    """Start an `ember` command; the process, and its line that has `ready` in it."""
    command = [sys.executable, "-m", "embermq", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    for said in process.stdout:
        if re.search(ready, said):
            return process, said
    raise SystemExit(f"{' '.join(arguments[:2])} ended with {process.wait()} before it was ready")


def commits(table: Path) -> list[tuple[float, float, int]]:
    """Of each commit with new rows: when it was there, the timestamp of its oldest row, how many rows."""
    found = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        added = [json.loads(line)["add"] for line in path.read_text().splitlines() if line.startswith('{"add"')]
        # A compaction adds files too, with rows that were there before.
        stats = [json.loads(add["stats"]) for add in added if add.get("stats") and add["dataChange"]]
        rows = sum(one["numRecords"] for one in stats)
        if rows:
            oldest = min(datetime.fromisoformat(one["minValues"]["timestamp"]).timestamp() for one in stats)
            found.append((path.stat().st_mtime, oldest, rows))
    return found


def publish(port: int, rate: int, seconds: float) -> int:
    """Publish at QoS 0 to a schedule, in a hundred small sends a second; how many."""
    packets = []
    for number in range(TOPICS):
        topic = f"lag/device-{number}/value".encode()
        body = len(topic).to_bytes(2, "big") + topic + b'{"value": %d, "unit": "C"}' % number
        packets.append(bytes([0x31, len(body)]) + body)
    sent = 0
    with open_client(port, "lag") as sock:
        began_s = time.monotonic()
        while (elapsed_s := time.monotonic() - began_s) < seconds:
            due = int(rate * elapsed_s)
            sock.sendall(b"".join(packets[number % TOPICS] for number in range(sent, due)))
            sent = due
            time.sleep(TICK_S)
        sock.sendall(b"\xe0\x00")
    return sent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--fresh", type=float, default=10.0, help="the pipeline's own option, in seconds")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds at the beginning that do not count")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-lag-") as place:
        data, table = Path(place) / "data", Path(place) / "lake" / "messages"
        server, said = start(["serve", "--port", "0", "--data", str(data)], r"mqtt://.*?:\d+")
        pipeline = None
        try:
            found = re.search(r"mqtt://.*?:(\d+)", said)
            assert found is not None
            lake = ["--data", str(data), "--lake", str(table.parent), "--master", "local[2]"]
            pipeline, _ = start(
                ["pipeline", "run", "--continuous", "--fresh", f"{chosen.fresh:g}s", *lake], "messages "
            )
            began_s = time.time()
            sent = publish(int(found[1]), chosen.rate, chosen.warm_up + chosen.seconds)
            deadline_s = time.monotonic() + CATCH_UP_S_MAX
            while (there := sum(rows for _, _, rows in commits(table))) < sent and time.monotonic() < deadline_s:
                time.sleep(0.5)
        finally:
            for process in filter(None, (pipeline, server)):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
        counted = [(when - oldest, rows) for when, oldest, rows in commits(table) if oldest > began_s + chosen.warm_up]
    lags = [lag for lag, _ in counted]
    print(f"{sent:,} messages sent at {chosen.rate:,} a second, {there:,} in `messages`, {len(lags)} commits counted")
    met = there == sent and max(lags) <= chosen.fresh
    print(
        f"age of the oldest message of a commit when it can be read: median {statistics.median(lags):.1f} s, "
        f"most {max(lags):.1f} s (at most {chosen.fresh:g}: {'met' if met else 'NOT MET'})"
    )


if __name__ == "__main__":
    main()
