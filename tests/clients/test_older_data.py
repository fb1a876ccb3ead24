"""A data directory that a server of an earlier version has left is opened and served to clients.

`support/make_older_data.py` has made it with commit a4e6f90: it says what is in it.
"""

import shutil
import tarfile
from pathlib import Path
from queue import SimpleQueue

import paho.mqtt.client as mqtt
import pytest

from support.make_older_data import TOPICS, connected, subscribe
from support.server_process import ServerProcess

FIXTURE = Path(__file__).parent.parent / "support" / "data_served_by_a4e6f90.tar.gz"
WAIT_S = 60.0
SETTINGS = {"limits.will_grace_s": "1", "store.retention_age_s": str(10**9), "store.durability": "os"}
RETAINED = {
    f"plant/{number}/value": (b"value %d " % number * 100, number % 3, "text/plain" if number % 3 == 0 else None)
    for number in range(TOPICS)
    if number % 10
}


@pytest.fixture(params=["as it is", "without its state", "from its checkpoint"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> ServerProcess:
    with tarfile.open(FIXTURE) as fixture:
        fixture.extractall(tmp_path, filter="data")
    data = tmp_path / "data"
    if request.param != "as it is":
        shutil.rmtree(data / "state")
    if request.param == "from its checkpoint":
        (checkpoint,) = (data / "log").glob("*.ckpt")
        for path in (data / "log").glob("0*"):
            if path.stem < checkpoint.stem:
                path.unlink()
    return ServerProcess(data, tmp_path / "server.log", SETTINGS)


Found = SimpleQueue[mqtt.MQTTMessage]


def received(client: mqtt.Client, found: Found, count: int) -> list[mqtt.MQTTMessage]:
    """So many messages, and no more of those that came before a PUBACK that the client then asks for."""
    messages = [found.get(timeout=WAIT_S) for _ in range(count)]
    client.publish("after", b"", 1).wait_for_publish(WAIT_S)
    assert found.empty(), found.get().topic
    return messages


def joined(server: ServerProcess, client_id: str) -> tuple[mqtt.Client, Found]:
    """A client with its session, whose messages are gathered."""
    found: Found = SimpleQueue()
    return connected(server.port, client_id, on_message=found.put), found


def test_sessions_retained_messages_queues_and_wills_are_served(server: ServerProcess) -> None:
    with server:
        away, owed = joined(server, "away")
        orders = received(away, owed, len([number for number in range(20) if number % 3]))
        for qos in (1, 2):  # the client gives a message of QoS 2 at its PUBREL
            assert [(each.topic, each.payload) for each in orders if each.qos == qos] == [
                (f"orders/{number}", b"order %d" % number) for number in range(20) if number % 3 == qos
            ]
        assert [getattr(each.properties, "SubscriptionIdentifier", None) for each in orders] == [[7]] * len(orders)
        member, shared = joined(server, "member")
        jobs = received(member, shared, 20)
        assert [(each.topic, each.payload) for each in jobs] == [
            (f"jobs/{number}", b"job %d" % number) for number in range(20)
        ]
        reader, kept = joined(server, "reader")
        subscribe(reader, "plant/#", 2)
        assert {
            each.topic: (each.payload, each.qos, getattr(each.properties, "ContentType", None))
            for each in received(reader, kept, len(RETAINED))
        } == RETAINED
        watcher, wills = joined(server, "watcher")
        will = wills.get(timeout=WAIT_S)  # queued, if it was published before
        assert (will.topic, will.payload) == ("state/publisher", b"gone: publisher")
        for client in (away, member, reader, watcher):
            client.disconnect()
            client.loop_stop()
        assert server.stop() == 0
