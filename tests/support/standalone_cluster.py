"""A standalone Spark cluster: a master and workers as processes, which see some directories empty."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import pyspark

from embermq.spark.session import java_home

SPARK_HOME = Path(pyspark.__file__).parent
_HIDDEN = """
while test "$1" != --; do mount -t tmpfs none "$1" || exit 9; shift; done
shift
exec "$@"
"""


def can_hide_directories() -> bool:
    """Whether this user may give processes mounts of their own."""
    try:
        return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class Process:
    """One Java process of the cluster, with all that it starts."""

    def __init__(
        self, log: Path, arguments: Sequence[str], environment: dict[str, str], hidden: Sequence[Path] = ()
    ) -> None:
        self.log = log
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        if hidden:
            command = ["unshare", "-m", "sh", "-c", _HIDDEN, "sh", *map(str, hidden), "--", *command]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output, start_new_session=True
            )

    def wait_for(self, pattern: str, timeout_s: float = 600) -> str:
        """What the log says where a pattern matches."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and self.process.poll() is None:
            if found := re.search(pattern, self.log.read_text(errors="replace")):
                return found[0]
            time.sleep(0.1)
        raise AssertionError(f"no {pattern}:\n{self.log.read_text(errors='replace')[-3000:]}")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


class StandaloneCluster:
    """A master and two workers. Executors are children of the workers, and see `hidden` as empty directories."""

    def __init__(self, directory: Path, hidden: Sequence[Path]) -> None:
        self._directory = directory
        self._hidden = hidden
        self._environment = {
            **os.environ,
            "JAVA_HOME": java_home(),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.workers: list[Process] = []
        self._started = 0

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        arguments = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master = Process(self._directory / "master.log", arguments, self._environment)
        try:
            self.url = self._master.wait_for(r"spark://127\.0\.0\.1:[1-9]\d*")
            for _ in range(2):
                self.add_worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self._master):
            process.kill()

    def add_worker(self) -> None:
        self._started += 1
        work = self._directory / f"worker-{self._started}"
        arguments = [
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            "--cores",
            "1",
        ]
        arguments += ["--memory", "1g", "--work-dir", str(work), self.url]
        worker = Process(self._directory / f"worker-{self._started}.log", arguments, self._environment, self._hidden)
        self.workers.append(worker)
        worker.wait_for("Successfully registered with master")

    def kill_worker(self) -> None:
        """`kill -9` for a worker and its executors."""
        self.workers.pop(0).kill()
