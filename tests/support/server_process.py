"""A real `ember serve` on a directory, for tests that kill it, starve its disk, or look at what it says.

Owns: the process, its port, what it has printed and logged.
"""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from support.wire import Wire

STOP_TIMEOUT_S = 60
EMBER = (sys.executable, "-m", "embermq")


class ServerEnded(Exception):
    """The server ended before it was ready; the text is what it said."""


class ServerProcess:
    """One server at a time on one directory; `start` it again after it was killed."""

    def __init__(
        self,
        directory: Path,
        log_path: Path,
        settings: dict[str, str] | None = None,
        config: Path | None = None,
        ember: tuple[str, ...] = EMBER,
        variables: dict[str, str] | None = None,
    ) -> None:
        """`settings` as `{"store.segment_bytes": "1048576"}`. All that the servers log is gathered in `log_path`.

        `variables` of the environment are given to the server as they are.
        """
        self._ember = ember
        self._directory = directory
        self._log_path = log_path
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("EMBERMQ_")}
        for name, value in (settings or {}).items():
            self._environment["EMBERMQ_" + name.replace(".", "__").upper()] = value
        if config is not None:
            self._environment["EMBERMQ_CONFIG"] = str(config)
        self._environment |= variables or {}
        self.process: subprocess.Popen[str] | None = None
        self.port = 0
        self.http_port = 0
        self.sn_port = 0
        self.start_s = 0.0
        """From the start of the process until it was ready."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def launch(self) -> None:
        """Start the process; `wait_until_ready` must follow."""
        assert self.process is None
        with self._log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._ember, "serve", "--port", "0", "--data", str(self._directory)],
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.start_s = -time.monotonic()

    def wait_until_ready(self) -> None:
        process = self.process
        assert process is not None and process.stdout is not None
        for line in process.stdout:
            if found := re.search(r" mqtt://.*?:(\d+)", line):
                self.port = int(found[1])
            elif found := re.search(r" mqtt-sn://.*?:(\d+)", line):
                self.sn_port = int(found[1])
            elif found := re.search(r" http://.*?:(\d+)", line):
                self.http_port = int(found[1])
            elif line == "ready\n":
                self.start_s += time.monotonic()
                return
        raise ServerEnded(f"exit code {process.wait()}: {self.log()[-2000:]}")

    def start(self) -> None:
        self.launch()
        try:
            self.wait_until_ready()
        except ServerEnded:
            self.kill()
            raise

    def restart(self) -> None:
        """As after a crash."""
        self.kill()
        self.start()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """`kill -9`, if it runs."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            process.communicate()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"the server does not stop:\n{self.log()[-2000:]}") from None
        return process.returncode

    def refused(self) -> str:
        """Start it where it must not start: its one sentence, after an exit with code 2."""
        ended = subprocess.run(
            [*self._ember, "serve", "--port", "0", "--data", str(self._directory)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=STOP_TIMEOUT_S,
        )
        said = [line for line in ended.stderr.splitlines() if line.startswith("ember: ")]
        assert (ended.returncode, ended.stdout, len(said)) == (2, "", 1), ended
        assert "Traceback" not in ended.stderr, ended.stderr
        return said[0]

    def log(self) -> str:
        """What all servers of this directory have logged so far."""
        return self._log_path.read_text()

    def wire(self) -> Wire:
        return Wire(("127.0.0.1", self.port))


def client(server: ServerProcess, client_id: str, *, clean: bool = True) -> Wire:
    """A connected client."""
    joined = server.wire()
    assert joined.connect(client_id, clean=clean).return_code == 0
    return joined


def retained(server: ServerProcess, topic_filter: str = "#") -> dict[str, bytes]:
    """What a new subscriber gets, if there is little of it."""
    with client(server, "onlooker") as looking:
        looking.subscribe((topic_filter, 0))
        return {message.topic_name: message.payload for message in looking.take_messages()}


def owed(server: ServerProcess, client_id: str) -> list[bytes]:
    """What a persistent session gets when its client is back; it stays owed."""
    with server.wire() as back:
        assert back.connect(client_id, clean=False).session_present == 1
        return [message.payload for message in back.peek_messages()]


def persistent(server: ServerProcess, client_id: str, topic_filter: str, qos: int) -> None:
    """A session that is away and is owed what is published from now on."""
    with client(server, client_id, clean=False) as subscriber:
        assert subscriber.subscribe((topic_filter, qos)) == [qos]
        subscriber.disconnect()
