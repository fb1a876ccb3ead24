"""What the pipeline costs beside a small server: `python -m bench.spark_cost [load|idle|once]`.

load: a server with a publisher that keeps to its rate, and `ember pipeline run --continuous` with all its tables. It
prints the processor time of the pipeline with all its processes as a share of one core, the most memory that they had
at once, and how many live files `messages` has. With `--rollups`, it has a typed table and rollups of it as
well, of minutes and hours in turn. idle: the same without a publisher. once: `ember pipeline run --once`
over a log of a million records, a quarter of them retained, three times, each into a new lake: on a new machine the
second run makes the archive of Java classes that the third uses (docs/pipeline.md, "Faster starts"). With
`--before PATH`, the `ember` command of another version runs in turn, and the target is half of its time. At the end
it writes the report of the last lake, five times.
Needs the `spark` extra and Java; runs on Linux.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped] # it has no types

from bench.spark_lag import publish, start

CORE_SHARE_MAX: Final = 0.15
IDLE_SHARE_MAX: Final = 0.02
MEMORY_BYTES_MAX: Final = 1.2e9
FILES_MAX: Final = 20
ONCE_RECORDS: Final = 1_000_000
ONCE_RUNS: Final = 3
ONCE_S_MAX: Final = 24.5
ONCE_RATIO_MAX: Final = 0.5
REPORT_RUNS: Final = 5
REPORT_S_MAX: Final = 3.0


class Usage:
    """The processor time and memory of a process with all its children, those that have ended since included."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._cpu_s: dict[int, float] = {}

    def look(self) -> tuple[float, int]:
        """The processor seconds up to now, and the bytes of memory of now; shared pages are counted once."""
        memory = 0
        for one in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                self._cpu_s[one.pid] = times.user + times.system
                memory += one.memory_full_info().pss
        return sum(self._cpu_s.values()), memory


def live_files(table: Path) -> int:
    """How many files the newest version of a table has, from the commits of its log."""
    live: set[str] = set()
    for path in sorted((table / "_delta_log").glob("*.json")):
        for line in path.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live.add(action["add"]["path"])
            elif "remove" in action:
                live.discard(action["remove"]["path"])
    return len(live)


def _settings(rollups: int) -> str:
    """A typed table of what is published, and rollups of it."""
    table = '[[pipeline.tables]]\nname = "values"\nfilter = "lag/+/value"\nformat = "json"\nschema = "value long"\n'
    blocks = (
        f'[[pipeline.rollups]]\nname = "rollup_{number}"\ntable = "values"\nevery = "{every}"\n'
        for number, every in zip(range(rollups), cycle(("minute", "hour")), strict=False)
    )
    return "".join((table, *blocks)) if rollups else ""


def continuous(rate: int, warm_up_s: float, seconds: float, rollups: int = 0) -> None:
    """Measure a pipeline that goes on with new records."""
    with tempfile.TemporaryDirectory(prefix="bench-cost-") as place:
        data, lake = Path(place) / "data", Path(place) / "lake"
        server, said = start(["serve", "--port", "0", "--data", str(data)], r"mqtt://.*?:\d+")
        pipeline = None
        try:
            found = re.search(r"mqtt://.*?:(\d+)", said)
            assert found is not None
            config = Path(place) / "ember.toml"
            config.write_text(_settings(rollups))
            places = ["--data", str(data), "--lake", str(lake), "--master", "local[2]", "--config", str(config)]
            pipeline, _ = start(["pipeline", "run", "--continuous", *places], "messages ")
            publisher = threading.Thread(target=publish, args=(int(found[1]), rate, warm_up_s + seconds))
            if rate:
                publisher.start()
            time.sleep(warm_up_s)
            usage = Usage(pipeline.pid)
            began_s, (cpu_before_s, _) = time.monotonic(), usage.look()
            most = 0
            while time.monotonic() - began_s < seconds:
                time.sleep(1)
                cpu_s, memory = usage.look()
                most = max(most, memory)
            share = (cpu_s - cpu_before_s) / (time.monotonic() - began_s)
            files = live_files(lake / "messages")
            if rate:
                publisher.join()
        finally:
            for process in filter(None, (pipeline, server)):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
    allowed = CORE_SHARE_MAX if rate else IDLE_SHARE_MAX
    print(f"{rate:,} messages/s, {rollups} rollups, {seconds:g} s after {warm_up_s:g} s of warming up:")
    print(f"  processor: {share:.1%} of a core (at most {allowed:.0%}: {_verdict(share <= allowed)})")
    print(f"  memory: {most / 1e9:.2f} GB (at most {MEMORY_BYTES_MAX / 1e9:g}: {_verdict(most <= MEMORY_BYTES_MAX)})")
    print(f"  live files of messages: {files} (fewer than {FILES_MAX}: {_verdict(files < FILES_MAX)})")


def once(records: int, before: str | None) -> None:
    """Measure runs over a log that is there already. `before`: the `ember` command of another version."""
    from embermq.store.log.writer import Log
    from embermq.store.rows import RETAIN_FLAG, Group, Kind

    with tempfile.TemporaryDirectory(prefix="bench-cost-") as place:
        log = Log(Path(place) / "data" / "log", segment_bytes=1 << 27, segment_age_s=10**9, sync=False)
        now_us = time.time_ns() // 1000 - records * 1000
        for first in range(0, records, 100):
            group = Group(log.next_offset)
            for number in range(first, first + 100):
                now_us += 1000
                topic = b"plant/%d/device-%d/value" % (number % 10, number % 5_000)
                payload = b'{"value": %d.5, "unit": "C"}' % (number % 997)
                group.append(
                    now_us, Kind.PUBLISH, RETAIN_FLAG if number % 4 == 0 else 1, topic, payload, b"client-1", b""
                )
            log.append(group, now_us)
        log.close()
        for number in range(1, ONCE_RUNS + 1):
            s_max = ONCE_S_MAX
            if before is not None:
                before_s, cpu_s = _run_once([before], Path(place) / "data", Path(place) / f"lake-{number}-before")
                s_max = ONCE_RATIO_MAX * before_s
                print(f"--once before, run {number}: {before_s:.1f} s, processor {cpu_s:.1f} s")
            ember = [sys.executable, "-m", "embermq"]
            took_s, cpu_s = _run_once(ember, Path(place) / "data", Path(place) / f"lake-{number}")
            verdict = f"at most {s_max:.1f}: {_verdict(took_s <= s_max)}"
            print(f"--once over {records:,} records, run {number}: {took_s:.1f} s ({verdict}), processor {cpu_s:.1f} s")
        for number in range(1, REPORT_RUNS + 1):
            places = ["--lake", str(Path(place) / f"lake-{ONCE_RUNS}"), "-o", str(Path(place) / "report.html")]
            took_s, cpu_s = _run([*ember, "pipeline", "report", *places])
            verdict = f"at most {REPORT_S_MAX:g}: {_verdict(took_s <= REPORT_S_MAX)}"
            print(f"report of it, run {number}: {took_s:.2f} s ({verdict}), processor {cpu_s:.2f} s")


def _run_once(ember: list[str], data: Path, lake: Path) -> tuple[float, float]:
    places = ["--data", str(data), "--lake", str(lake)]
    return _run([*ember, "pipeline", "run", "--once", "--master", "local[2]", *places])


def _run(command: list[str]) -> tuple[float, float]:
    """How long a command takes, and its processor time, in seconds."""
    began_s, cpu_s = time.monotonic(), 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    usage = Usage(process.pid)
    while process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            cpu_s = usage.look()[0]
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    assert process.returncode == 0
    return time.monotonic() - began_s, cpu_s


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["load", "idle", "once"], default=["load", "idle", "once"])
    parser.add_argument("--rate", type=int, default=200, help="messages a second of `load`")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long is measured")
    parser.add_argument("--warm-up", type=float, default=120.0, help="seconds at the beginning that do not count")
    parser.add_argument("--rollups", type=int, default=0, help="rollups of `load`")
    parser.add_argument("--records", type=int, default=ONCE_RECORDS, help="records of `once`")
    parser.add_argument("--before", metavar="PATH", help="another version's `ember` command, for `once`")
    chosen = parser.parse_args()
    # A program that may not keep its bytecode compiles all it imports again, a second of the processor each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if "load" in chosen.what:
        continuous(chosen.rate, chosen.warm_up, chosen.seconds, chosen.rollups)
    if "idle" in chosen.what:
        continuous(0, chosen.warm_up, chosen.seconds)
    if "once" in chosen.what:
        once(chosen.records, chosen.before)


if __name__ == "__main__":
    main()
