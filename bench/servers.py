"""The brokers under test as processes.

Owns: their command lines and settings, start, readiness, kill, and their temporary directories.
Never: load; a `Server` only ever opens one connection, to see that CONNECT is answered.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from bench import packets
from bench.machine import Cores, cpu_seconds, resident_bytes, waited_seconds
from bench.wires import Wire, make_certificate

READY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 60.0

# Mosquitto in the floods: no message may be dropped for a queue limit, and its window towards a subscriber must not
# be smaller than the one the generator works with; otherwise the figure would be that of a limit. Nagle's delay is
# off because EmberMQ switches it off too. All else is Mosquitto's default, logging included.
MOSQUITTO_FLOOD: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
user root
set_tcp_nodelay true
max_queued_messages 0
max_inflight_messages 1000
persistence false
"""

# Mosquitto in the retained scenarios: persistence switched on as the distribution's file does, and every limit as it
# is by default, because what a default cuts off is a part of the answer.
MOSQUITTO_STORE: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
user root
set_tcp_nodelay true
persistence true
persistence_location {data}/
"""

Command = Callable[[int, Path], list[str]]


class BrokerFailed(Exception):
    """A broker did not start, did not answer or went away; the text has the end of its output."""


class Server:
    """One broker process on a free loopback port, with a directory of its own."""

    __slots__ = ("_command", "_core", "_output", "data", "directory", "name", "port", "process", "wire_port")

    def __init__(self, name: str, command: Command, cores: Cores) -> None:
        self.name = name
        self.port = free_port()
        self.wire_port = free_port()  # for a wire other than TCP, where one is asked for
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{name.lower()}-"))
        self.data = self.directory / "data"
        self.data.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self._command = command
        self._core = cores.broker
        self._output = self.directory / "output.log"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    @property
    def pid(self) -> int:
        if self.process is None:
            raise BrokerFailed(f"{self.name} is not running")
        return self.process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def waited_seconds(self) -> float:
        return waited_seconds(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def start(self) -> float:
        """Start the process; the seconds until it answered its first CONNECT."""
        core = self._core

        def pin_child() -> None:
            if core is not None:
                os.sched_setaffinity(0, {core})

        begun = time.perf_counter()
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                self._command(self.port, self.directory),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                preexec_fn=pin_child,
            )
        while not answers_connect(self.port):
            if self.process.poll() is not None or time.perf_counter() - begun > READY_S_MAX:
                tail = self._output.read_text(encoding="utf-8", errors="replace")[-1000:]
                raise BrokerFailed(f"{self.name} did not answer CONNECT; its last output:\n{tail}")
            time.sleep(0.002)
        return time.perf_counter() - begun

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> float:
        """End the process; the seconds it took."""
        begun = time.perf_counter()
        if self.process is not None:
            self.process.send_signal(with_signal)
            try:
                self.process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None
        return time.perf_counter() - begun

    def remove(self) -> None:
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers_connect(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=READY_S_MAX) as probe:
            probe.sendall(packets.connect("bench-probe"))
            answer = probe.recv(4)
            probe.sendall(packets.DISCONNECT)
            return answer == b"\x20\x02\x00\x00"
    except OSError:
        return False


def mosquitto_path() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def mosquitto_version(path: str) -> str:
    shown = subprocess.run([path, "-h"], capture_output=True, text=True, check=False).stdout
    return shown.splitlines()[0].removeprefix("mosquitto version ").strip() if shown else "unknown"


def ember_path() -> str | None:
    beside = Path(sys.executable).with_name("ember")
    return str(beside) if beside.exists() else shutil.which("ember")


def mosquitto(path: str, settings: str, cores: Cores, wire: Wire = "tcp") -> Server:
    def command(port: int, directory: Path) -> list[str]:
        config = directory / "mosquitto.conf"
        text = settings.format(port=port, data=directory / "data")
        if wire != "tcp":
            text += f"listener {server.wire_port} 127.0.0.1\n"
        if wire == "tls":
            certificate, key = make_certificate(directory)
            text += f"certfile {certificate}\nkeyfile {key}\n"
        elif wire == "websocket":
            text += "protocol websockets\n"
        config.write_text(text, encoding="utf-8")
        return [path, "-c", str(config)]

    server = Server("Mosquitto", command, cores)
    return server


def ember(
    path: str,
    settings: str,
    on_disk: bool,
    cores: Cores,
    extra: list[str],
    name: str = "EmberMQ",
    wire: Wire = "tcp",
) -> Server:
    def command(port: int, directory: Path) -> list[str]:
        config = directory / "ember.toml"
        config.write_text(settings, encoding="utf-8")
        arguments = ["--data", str(directory / "data")] if on_disk else ["--memory"]
        if wire == "tls":
            certificate, key = make_certificate(directory)
            arguments += ["--tls-port", str(server.wire_port), "--cert", str(certificate), "--key", str(key)]
        elif wire == "websocket":
            arguments += ["--ws-port", str(server.wire_port)]
        return [path, "serve", "--config", str(config), "--port", str(port), *arguments, *extra]

    server = Server(name, command, cores)
    return server


def sink(cores: Cores) -> Server:
    script = str(Path(__file__).with_name("sink.py"))
    return Server("sink", lambda port, _: [sys.executable, script, str(port)], cores)
