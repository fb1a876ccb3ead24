"""`ember pipeline run` as a process of its own, for tests that kill it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from spark.conftest import TEST_SETTINGS


def settings_beside(lake: Path, more: Mapping[str, str] | None = None) -> Path:
    """A directory with the settings of the suite's own session and more, as a user has them for Spark."""
    place = lake.parent / "spark-conf"
    place.mkdir(exist_ok=True)
    settings = {**TEST_SETTINGS, **(more or {})}
    (place / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return place


class PipelineProcess:
    """One run; everything it says is kept. Killing it kills its Java process as well, which is in its group."""

    def __init__(self, data: Path, lake: Path | str, *arguments: str, more: Mapping[str, str] | None = None) -> None:
        """`more` are settings of Spark. A lake at a URL has them beside the data."""
        command = [sys.executable, "-m", "embermq", "pipeline", "run", "--data", str(data), "--lake", str(lake)]
        self.said: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [*command, "--master", "local[2]", *arguments],
            env={**os.environ, "SPARK_CONF_DIR": str(settings_beside(lake if isinstance(lake, Path) else data, more))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.said.append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def kill(self) -> None:
        """SIGKILL for the driver and all it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def terminate(self) -> int:
        """SIGTERM for the driver alone; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)

    def wait_for(self, text: str, timeout_s: float = 240) -> None:
        """Until it has said this; fails if it ends before."""
        with self._changed:
            ready = self._changed.wait_for(
                lambda: any(text in line for line in self.said) or not self._reading.is_alive(), timeout_s
            )
            assert ready and any(text in line for line in self.said), "".join(self.said[-40:])

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 240) -> None:
        """Until this holds; fails if it ends before."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                assert self._reading.is_alive() and time.monotonic() < deadline_s, "".join(self.said[-40:])
                self._changed.wait(0.2)
