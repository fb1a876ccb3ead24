"""A server of Spark Connect with Delta Lake, as a process of its own, and programs that are its clients."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

from embermq.spark.session import java_home, session_settings
from spark.conftest import TEST_SETTINGS
from support.standalone_cluster import SPARK_HOME, Process

CLIENT_PACKAGES = Path(sys.prefix) / "connect"
"""What a client needs beside PySpark. `make test-spark` installs it there: nothing else is tested with it."""

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class ConnectServer:
    """A server on a free port of this machine. Its event log is in `directory / "events"`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "events").mkdir()
        settings = {
            **session_settings("local[2]", TEST_SETTINGS),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": str(directory / "events"),
            "spark.eventLog.compress": "false",
            "spark.log.level": "INFO",  # it says its port
        }
        given = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        environment = {**os.environ, "JAVA_HOME": java_home(), "SPARK_HOME": str(SPARK_HOME)}
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        submit = ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--class", _SERVER]
        self._process = Process(directory / "log", [*submit, *given, "spark-internal"], environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def run_client(self, program: str, *arguments: str | Path) -> list[str]:
        """The lines that a program prints whose session is named `spark`. It has no Java."""
        said = self._process.wait_for(r"Spark Connect server started at: \S+:\d+")
        remote = f"sc://127.0.0.1:{said.rpartition(':')[2]}"
        begin = f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.remote({remote!r}).getOrCreate()\n"
        path = os.pathsep.join([str(CLIENT_PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])])
        ran = subprocess.run(
            [sys.executable, "-c", begin + program, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path, "PATH": "", "JAVA_HOME": ""},
            capture_output=True,
            text=True,
            cwd=self.directory,
            timeout=600,
            check=False,
        )
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-4000:]}"
        return ran.stdout.splitlines()
