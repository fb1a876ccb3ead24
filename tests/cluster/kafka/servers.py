"""Three servers on one Kafka, a client that goes to whichever is active, and what the servers' logs have at the end.

Owns: the servers' processes and directories, and what the client was acknowledged.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from embermq.cluster.operate import status
from embermq.cluster.sequencer import KafkaOptions
from embermq.store.interface import NodeStatus
from embermq.store.log.writer import Log
from support.ember_command import ember
from support.server_process import ServerProcess

NODES: Final = (1, 2, 3)
NODE_TIMEOUT_MS: Final = 3_000
DEADLINE_S: Final = 120
TOPICS: Final = 40
ANSWER_S: Final = 5
"""How long a client waits for a server that was stopped: longer than a busy one takes."""


def all_there(cluster: "Servers") -> bool:
    """Whether one node is active and the others are standbys."""
    states = {node: each.state for node, each in cluster.nodes().items()}
    print(time.strftime("%H:%M:%S"), states)
    return set(states.values()) == {"active", "standby"}


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for something that servers or threads do by themselves."""
    until_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < until_s, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


@final
class Servers:
    """Nodes 1 to 3, by number."""

    def __init__(self, directory: Path, options: KafkaOptions) -> None:
        self.directory: Final = directory
        self.options: Final = options
        self.processes: Final = {node: self._process(node) for node in NODES}

    def _process(self, node: int) -> ServerProcess:
        return ServerProcess(self.data(node), self.directory / f"node{node}.log", self.settings(node))

    def settings(self, node: int) -> dict[str, str]:
        return {
            "cluster.bootstrap_servers": f'["{self.options.bootstrap_servers[0]}"]',
            "cluster.topic": self.options.topic,
            "cluster.node": str(node),
            "cluster.reachable_at": f"mqtt{node}.example:1883",
            "cluster.node_timeout_ms": str(NODE_TIMEOUT_MS),
            "limits.will_grace_s": "1",
        }

    def data(self, node: int) -> Path:
        return self.directory / f"data{node}"

    def command(self, *arguments: str, node: int = 1) -> Any:
        """`ember cluster ...` on the machine of a node."""
        names = {"EMBERMQ_" + name.replace(".", "__").upper(): text for name, text in self.settings(node).items()}
        return ember("cluster", *arguments, "--data", self.data(node), environment=names)

    def start(self, *nodes: int) -> None:
        for node in nodes:
            self.processes[node].launch()
        for node in nodes:
            self.processes[node].wait_until_ready()

    def active(self, *nodes: int) -> int:
        """The one of these nodes that takes a client, once one does."""
        found: list[int] = []

        def is_found() -> bool:
            found.extend(node for node in nodes or NODES if not found and self._takes_clients(node))
            return bool(found)

        until(is_found, f"one of the nodes {nodes or NODES} is active")
        return found[0]

    def _takes_clients(self, node: int) -> bool:
        with suppress(OSError, EOFError), self.processes[node].wire() as wire:
            return wire.connect("asker").return_code == 0
        return False

    def nodes(self) -> dict[int, NodeStatus]:
        """As `ember cluster status` has them."""
        from embermq.cluster.kafka import KafkaSequencer

        sequencer = KafkaSequencer(self.options)
        try:
            return {each.node: each for each in status(self.directory / "onlooker", sequencer)[1]}
        finally:
            sequencer.close()

    def stop_all(self) -> None:
        for process in self.processes.values():
            if process.process is not None:
                assert process.stop() == 0, process.log()[-2000:]

    def records(self, node: int) -> list[tuple[Any, ...]]:
        """All that the log of a stopped node has."""
        log = Log(self.data(node) / "log", segment_bytes=1 << 27, segment_age_s=3600, sync=False)
        try:
            return [
                (row.offset, row.timestamp_us, row.kind, row.flags, row.topic, row.payload, row.client_id)
                for group in log.groups_from(log.first_offset)
                for row in group.rows
            ]
        finally:
            log.close()

    def retained(self, node: int) -> bytes:
        """All that a stopped node has retained."""
        done = ember("retained", "ls", "#", "--json", "--data", self.data(node))
        assert done.code == 0, done.errors
        return bytes(done.printed)


@contextmanager
def servers(directory: Path, options: KafkaOptions) -> Iterator[Servers]:
    """Three servers that run, on a new shared log."""
    cluster = Servers(directory, options)
    done = cluster.command("init")
    assert done.code == 0, done.errors
    try:
        cluster.start(*NODES)
        yield cluster
    finally:
        for process in cluster.processes.values():
            process.kill()
            print(process.log())  # shown after a failure
        for node in NODES:
            shutil.rmtree(cluster.data(node), ignore_errors=True)


@final
class Publisher(threading.Thread):
    """Publishes retained messages at QoS 1, one after the other, to the server that takes it.

    What is not acknowledged is published again, to the next server: at least once.
    """

    def __init__(self, cluster: Servers) -> None:
        super().__init__(daemon=True)
        self.acknowledged: Final[list[bytes]] = []
        self._cluster: Final = cluster
        self._ended: Final = threading.Event()

    def __enter__(self) -> "Publisher":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(DEADLINE_S)

    def gets_on(self, count: int = 30) -> None:
        """Wait until more was acknowledged."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) >= before + count, f"{count} more acknowledgements after {before}")

    def run(self) -> None:
        at = 0
        while not self._ended.is_set():
            at += 1
            self._publish_to(self._cluster.processes[NODES[at % len(NODES)]].port)

    def _publish_to(self, port: int) -> None:
        """Until the server refuses, ends the connection, or does not answer for some seconds."""
        answered = threading.Event()
        accepted: list[bool] = []

        def connected(_: object, __: object, ___: object, reason: ReasonCode, ____: object) -> None:
            accepted.append(not reason.is_failure)
            answered.set()

        client = paho.Client(CallbackAPIVersion.VERSION2, client_id="publisher")
        client.on_connect = connected
        client.on_publish = client.on_disconnect = lambda *_: answered.set()
        with suppress(OSError):
            client.connect("127.0.0.1", port, keepalive=5)
            client.loop_start()
            is_answered = answered.wait(ANSWER_S) and accepted[:1] == [True]
            while is_answered and not self._ended.is_set():
                answered.clear()
                number = len(self.acknowledged)
                payload = b"%d" % number
                client.publish(f"plant/{number % TOPICS}", payload, qos=1, retain=True)
                is_answered = answered.wait(ANSWER_S) and client.is_connected()
                if is_answered:
                    self.acknowledged.append(payload)
        client.disconnect()
        client.loop_stop()
