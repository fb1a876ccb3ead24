"""Who carries the data on a cluster: `PYTHONPATH=tests python -m bench.spark_cluster [--records N]`.

A server whose log has `--records` messages, a lake on HDFS, and a standalone Spark cluster of two workers which see
neither the server's directory nor that of HDFS. `ember pipeline submit` loads the table `messages` once. Printed are
the processor time and the bytes of TCP of the driver (with all its processes) and of both workers (with their executors
and the Python processes of these): all of the run, and without its start and the first batch. There the driver is to
have at most a fifth of what the workers have.

The bytes are those that the sockets of a side have sent and received, but not between its own processes, as `ss` shows
them every half second: what a socket moves after it was last seen is missing, for the workers more than for the driver,
whose connections stay.
Needs the `spark` extra, Java, HDFS of Maven, `ss` and `unshare -m` (Linux, root).
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

import psutil  # type: ignore[import-untyped] # it has no types

from bench.machine import Cores, facts
from bench.spark_cost import Usage
from bench.spark_rates import write_log
from embermq.access.tokens import write_token
from support.java_services import hdfs
from support.server_process import ServerProcess
from support.standalone_cluster import StandaloneCluster

PART_MAX: Final = 0.2
SAMPLE_S: Final = 0.5
TOPICS: Final = 100_000
GROUP_RECORDS: Final = 100
_SOCKET: Final = re.compile(r"\S+ +\S+ +\S+ +(\S+) +(\S+) .*?pid=(\d+)(.*)")
_MOVED: Final = re.compile(r"bytes_(?:sent|received):(\d+)")


class Party:
    """One side: some processes with all their children."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._usages = [Usage(pid) for pid in pids]
        self._moved: dict[tuple[str, str, int], int] = {}
        self.cpu_s = 0.0

    def look(self, sockets: list[tuple[str, str, int, int]]) -> None:
        self.cpu_s = sum(usage.look()[0] for usage in self._usages)
        for root in self._pids:
            own = {root, *(child.pid for child in psutil.Process(root).children(recursive=True))}
            places = {here for here, _, pid, _ in sockets if pid in own}
            for here, there, pid, moved in sockets:
                if pid in own and there not in places:  # else from a Java process to its Python, for example
                    self._moved[here, there, pid] = max(moved, self._moved.get((here, there, pid), 0))

    @property
    def moved_bytes(self) -> int:
        return sum(self._moved.values())


def sockets() -> list[tuple[str, str, int, int]]:
    """The connections of now: both addresses, whose it is, and how many bytes went either way."""
    said = subprocess.run(["ss", "-tinpHO"], capture_output=True, text=True, check=True).stdout
    found = [match for line in said.splitlines() if (match := _SOCKET.match(line))]
    return [(each[1], each[2], int(each[3]), sum(map(int, _MOVED.findall(each[4])))) for each in found]


def load(records: int) -> bool:
    """Measure one load; whether the driver did little enough."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as place:
        directory = Path(place)
        data, stored = directory / "data", directory / "hdfs"
        stored.mkdir()
        write_log(data, records, TOPICS, GROUP_RECORDS)
        (directory / "token").write_text(write_token(directory / "tokens", "lake", "reader"))
        settings = {"http.port": "0", "http.token_file": str(directory / "tokens"), "store.durability": "os"}
        with (
            ServerProcess(data, directory / "server.log", settings) as server,
            hdfs(stored) as lake,
            StandaloneCluster(directory / "spark", [data, stored]) as cluster,
        ):
            command = [sys.executable, "-m", "embermq", "pipeline", "submit", "--master", cluster.url]
            command += ["--conf", "spark.executor.memory=600m", "--conf", "spark.driver.host=127.0.0.1", "--"]
            command += ["--server", f"http://127.0.0.1:{server.http_port}", "--token-file", str(directory / "token")]
            command += ["--lake", f"{lake}/tables", "--once", "--only", "messages"]
            environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
            workers = Party([worker.process.pid for worker in cluster.workers])
            said = directory / "said"
            with said.open("w") as output:
                submitted = subprocess.Popen(command, env=environment, cwd=place, stdout=output, stderr=output)
            driver, first = Party([submitted.pid]), Used(0, 0, 0, 0)
            while submitted.poll() is None:
                now = sockets()
                driver.look(now)
                workers.look(now)
                if not first.driver_s and "messages " in said.read_text():
                    first = used(driver, workers)
                time.sleep(SAMPLE_S)
            if submitted.returncode:
                raise SystemExit(said.read_text()[-4000:])
            print("\n".join(line for line in said.read_text().splitlines() if line.startswith("messages")))
    last = used(driver, workers)
    report(f"all of it, for {records:,} messages", last)
    return report("from the first batch on", Used(*(after - before for before, after in zip(first, last, strict=True))))


class Used(NamedTuple):
    driver_s: float
    workers_s: float
    driver_mb: float
    workers_mb: float


def used(driver: Party, workers: Party) -> Used:
    return Used(driver.cpu_s, workers.cpu_s, driver.moved_bytes / 1e6, workers.moved_bytes / 1e6)


def report(when: str, used: Used) -> bool:
    """Whether the driver has had little enough."""
    time_part, bytes_part = used.driver_s / used.workers_s, used.driver_mb / used.workers_mb
    print(f"{when}:")
    print(f"  processor time: driver {used.driver_s:.1f} s, workers {used.workers_s:.1f} s: {_of_theirs(time_part)}")
    print(
        f"  bytes of TCP: driver {used.driver_mb:,.1f} MB, workers {used.workers_mb:,.1f} MB: {_of_theirs(bytes_part)}"
    )
    return max(time_part, bytes_part) <= PART_MAX


def _of_theirs(part: float) -> str:
    verdict = "met" if part <= PART_MAX else "NOT MET"
    return f"{part:.3f} of theirs (at most {PART_MAX:g}: {verdict})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    chosen = parser.parse_args()
    print(facts(Cores(None, None)), flush=True)
    raise SystemExit(not load(chosen.records))


if __name__ == "__main__":
    main()
