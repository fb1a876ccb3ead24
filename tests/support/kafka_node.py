"""One real Kafka node for all tests of a process, and topics of their own on it.

Owns: the node's process, its listeners, its users. `tools/kafka` fetches and starts it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

from embermq.certificates import Authority
from support.ports import free_port

TOOL = Path(__file__).parent.parent.parent / "tools" / "kafka"
START_TIMEOUT_S = 100
STOP_TIMEOUT_S = 60
NODE, STRANGER = "node", "stranger"
"""Users of the listener with TLS: one may use all topics named `ember.log...`, the other may only connect."""
PASSWORD = "lantern"


class NoKafka(Exception):
    """Kafka cannot be had here; one sentence why."""


@final
class KafkaNode:
    """Kafka in a directory. With `secured` it has a second listener, with TLS, users and rights."""

    def __init__(self, directory: Path, secured: bool = False, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.address = ""
        self.secured_address = ""
        self.authority = Path()
        plain, controller = free_port(), free_port()
        self._settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            **(settings or {}),
        }
        self._process: subprocess.Popen[str] | None = None
        if secured:
            self._secure()

    def _secure(self) -> None:
        self.directory.mkdir(parents=True)
        authority = Authority(self.directory)
        pair = authority.sign("kafka")
        keystore = self.directory / "kafka.pem"
        keystore.write_bytes(pair.key.read_bytes() + pair.certificate.read_bytes())
        self.authority = authority.certificate
        plain, tls, controller = free_port(), free_port(), free_port()
        self.secured_address = f"127.0.0.1:{tls}"
        users = " ".join(f'user_{name}="{PASSWORD}"' for name in (NODE, STRANGER))
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self._settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://{self.secured_address},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module} required {users};",
            "listener.name.sasl_ssl.ssl.keystore.type": "PEM",
            "listener.name.sasl_ssl.ssl.keystore.location": str(keystore),
        }

    def start(self) -> None:
        """Until it answers. NoKafka: there is no Java, or the jars cannot be fetched."""
        settings = [f"--setting={name}={value}" for name, value in self._settings.items()]
        command = [sys.executable, str(TOOL), "run", str(self.directory), *settings]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None and self._process.stderr is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            raise NoKafka(self._process.communicate()[1].strip().rpartition("\n")[2])
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        until_s = time.monotonic() + START_TIMEOUT_S
        while "Kafka Server started" not in self._log():
            assert self._process.poll() is None, self._log()[-2000:]
            assert time.monotonic() < until_s, f"Kafka has not started within {START_TIMEOUT_S} s"
            time.sleep(0.1)

    def _log(self) -> str:
        path = self.directory / "kafka.log"
        return path.read_text() if path.exists() else ""

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        assert self._process is not None
        self._process.send_signal(signal_number)
        self._process.wait(STOP_TIMEOUT_S)
        (self.directory / "kafka.log").rename(self.directory / f"kafka-{self._process.pid}.log")
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._process = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_running(self) -> bool:
        return self._process is not None

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def kafka_node(directory: Path, secured: bool = False, settings: dict[str, str] | None = None) -> Iterator[KafkaNode]:
    node = KafkaNode(directory, secured, settings)
    node.start()
    try:
        yield node
    finally:
        if node.is_running():
            node.kill()
