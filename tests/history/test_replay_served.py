"""`$replay` into the archive from a real server that trims its log meanwhile, and over HTTP the same messages."""

import queue
from pathlib import Path

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from embermq.http.client import HttpClient
from embermq.store.log.reader import LogReader
from support.server_process import ServerProcess
from support.wire import PUBACK, Wire, ack
from support.wire_v5 import RECEIVE_MAXIMUM, WireV5

HOST = "127.0.0.1"
MIB = 1024 * 1024
TIMEOUT_S = 60
SMALL = {"store.segment_bytes": str(MIB), "store.retention_bytes": str(MIB), "store.durability": "os"}


class Publisher:
    """Publishes 0, 1, 2... in messages of 32 KiB, each acknowledged."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.published = 0

    def publish(self, count: int) -> None:
        for number in range(self.published, self.published + count):
            self._wire.publish("f/a", b"%d " % number + bytes(32 * 1024), qos=1)
        self.published += count


def number(payload: bytes | bytearray) -> int:
    return int(payload.partition(b" ")[0])


def replayed_by_paho(port: int, publisher: Publisher) -> list[int]:
    """All that a client gets that replays everything, while more is published, until that has come."""
    messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
    client = paho.Client(CallbackAPIVersion.VERSION2, "paho")
    client.on_message = lambda client, data, message: messages.put(message)
    client.connect(HOST, port)
    client.loop_start()
    client.subscribe("$replay/../f/#", 1)
    got = [number(messages.get(timeout=TIMEOUT_S).payload)]
    publisher.publish(20)
    while len(got) < publisher.published:
        got.append(number(messages.get(timeout=TIMEOUT_S).payload))
    client.disconnect()
    client.loop_stop()
    assert messages.empty()
    return got


def test_clients_replay_what_only_the_archive_has(tmp_path: Path) -> None:
    data, archive = tmp_path / "data", tmp_path / "archive"
    with (
        ServerProcess(data, tmp_path / "log", {**SMALL, "store.archive": str(archive)}) as server,
        Wire((HOST, server.port)) as wire,
        WireV5((HOST, server.port)) as slow,
        WireV5((HOST, server.port)) as late,
        HttpClient(data / "control.sock") as http,
    ):
        wire.connect("publisher")
        publisher = Publisher(wire)
        publisher.publish(20)
        slow.connect("slow", properties=[(RECEIVE_MAXIMUM, 10)])
        assert slow.subscribe(("$replay/../f/#", 1)) == [1]
        waiting = [slow.receive_message(answer=False) for _ in range(10)]
        while "trimmed " not in server.log():
            publisher.publish(10)
            assert publisher.published < 2_000
        first = LogReader(data / "log").bounds()[0]
        assert first > 30

        changed = min((archive / "segments").glob("*.log"))
        whole = changed.read_bytes()
        changed.write_bytes(whole[:-9] + b"x" + whole[-8:])
        late.connect("late")
        assert late.subscribe(("$replay/../f/#", 1)) == [1]
        late.assert_disconnected(0x83)
        assert f"a history subscription: segments/{changed.name} of the archive {archive} is damaged" in server.log()
        changed.write_bytes(whole)

        assert replayed_by_paho(server.port, publisher) == list(range(publisher.published))
        found = http.lines("/api/v1/messages", filter="f/#", payload_bytes=10)
        assert [number(each["payload"].encode()) for each in found] == list(range(publisher.published))

        # It was subscribed when the log had everything, and goes on in the archive.
        slow.send(*(ack(PUBACK, each.packet_id) for each in waiting))
        got = [number(each.payload) for each in waiting]
        got += [number(slow.receive_message().payload) for _ in range(publisher.published - 10)]
        assert got == list(range(publisher.published))

        publisher.publish(1)
        assert number(slow.receive_message().payload) == publisher.published - 1, "live"
        assert server.stop() == 0
