"""A server that runs under the recorder, and clients that give it something to keep.

Owns: compiling the recorder, the lives of the server (stopped, or killed, which loses nothing that it wrote), and the
load.
"""

import shutil
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Literal

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from support.server_process import ServerProcess

RECORDER = Path(__file__).with_name("recorder.c")
PATIENCE_S = 120.0
INFLIGHT_MAX = 20
KEPT_TOPICS = 8
SIZES = (10, 60, 300, 2_000, 9_000, 30_000)

Durability = Literal["sync", "os"]


def is_possible() -> bool:
    """The recorder needs a compiler, and Linux."""
    return shutil.which("cc") is not None and Path("/proc/self/fd").is_dir()


class Recording:
    """One directory: `data` below `root` is the server's, `events` is what happened."""

    def __init__(self, directory: Path, seed: int, durability: Durability = "sync") -> None:
        self.root = (directory / "root").resolve()
        self.events = directory / "events"
        self.durability: Durability = durability
        self._rng = Random(seed)
        self.root.mkdir()
        library = directory / "recorder.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), str(RECORDER)], check=True)
        self._server = ServerProcess(
            self.root / "data",
            directory / "server.log",
            {
                "store.segment_bytes": str(1 << 20),
                "store.retention_bytes": str(1 << 20),
                "store.durability": durability,
            },
            variables={
                "LD_PRELOAD": str(library),
                "POWERCUT_ROOT": str(self.root),
                "POWERCUT_EVENTS": str(self.events),
            },
        )

    def run(self, lives: int, messages: int) -> None:
        """So many lives of the server, with so many messages in each; every second one ends with a kill."""
        with ExitStack() as ending:
            ending.callback(self._server.kill)
            clients = Clients(ending, self._rng)
            for life in range(lives):
                self._server.start()
                clients.connect(self._server.port)
                clients.wait(0)  # paho sends what it must repeat behind what it is given meanwhile
                for number in range(messages):
                    clients.publish()
                    if number == messages // 2:
                        clients.leave()  # the second half is owed to who is away
                clients.wait(0 if life % 2 else INFLIGHT_MAX // 2)
                if life % 2:
                    self._server.stop()
                else:
                    self._server.kill()


class Clients:
    """Publishers at QoS 1 and 2, in MQTT 3.1.1 and 5; a session that stays, and one that is away half of the time."""

    def __init__(self, ending: ExitStack, rng: Random) -> None:
        self._rng = rng
        self._changed = threading.Condition()
        self._unacknowledged = 0
        self._number = 0
        self._subscribed: set[str] = set()
        self.publishers = [
            self._client(f"publisher-{n}", MQTTProtocolVersion.MQTTv5 if n % 2 else MQTTProtocolVersion.MQTTv311)
            for n in range(3)
        ]
        self.online = self._client("online-qos2", MQTTProtocolVersion.MQTTv5)
        self.away = self._client("away", MQTTProtocolVersion.MQTTv311)
        for client in (*self.publishers, self.online, self.away):
            ending.callback(client.loop_stop)
            ending.callback(client.disconnect)

    def _client(self, client_id: str, protocol: MQTTProtocolVersion) -> paho.Client:
        is_v5 = protocol == MQTTProtocolVersion.MQTTv5
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id, clean_session=None if is_v5 else False, protocol=protocol
        )
        client.max_inflight_messages_set(INFLIGHT_MAX)
        client.on_publish = lambda *_: self._acknowledged()
        client.on_connect = lambda *_: self._connected(client, client_id)
        client.on_subscribe = lambda *_: self._note(client_id)
        return client

    def _connected(self, client: paho.Client, client_id: str) -> None:
        if client_id.startswith("publisher"):
            self._note(client_id)
        else:
            client.subscribe([("live/#", 2), ("kept/#", 1)])

    def _note(self, client_id: str) -> None:
        with self._changed:
            self._subscribed.add(client_id)
            self._changed.notify_all()

    def _acknowledged(self) -> None:
        with self._changed:
            self._unacknowledged -= 1
            self._changed.notify_all()

    def connect(self, port: int) -> None:
        """All of them; returns when they are connected and subscribed."""
        self._subscribed.clear()
        clients = (*self.publishers, self.online, self.away)
        for client in clients:
            client.loop_stop()
            if client.protocol == MQTTProtocolVersion.MQTTv5:
                client.connect("127.0.0.1", port, clean_start=False, properties=_session_for_an_hour())
            else:
                client.connect("127.0.0.1", port)
            client.loop_start()
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._subscribed) == len(clients), PATIENCE_S)

    def leave(self) -> None:
        self.away.disconnect()

    def publish(self) -> None:
        """One message, when there is room for it."""
        number = self._rng.randrange(len(self.publishers))
        qos = self._rng.choice((1, 2))
        is_retained = self._rng.random() < 0.5
        topic_name = f"live/{number}/{qos}"
        if is_retained:
            topic_name = f"kept/{number}/{qos}/{self._rng.randrange(KEPT_TOPICS)}"
        self._number += 1
        payload = f"{self._number} ".encode() + self._rng.randbytes(self._rng.choice(SIZES))
        if is_retained and self._rng.random() < 0.1:
            payload = b""
        self.wait(INFLIGHT_MAX)
        with self._changed:
            self._unacknowledged += 1
        self.publishers[number].publish(topic_name, payload, qos, is_retained)

    def wait(self, unacknowledged: int) -> None:
        """Until no more than so many are not acknowledged."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._unacknowledged <= unacknowledged, PATIENCE_S)


def _session_for_an_hour() -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's has no types
    properties.SessionExpiryInterval = 3600
    return properties
