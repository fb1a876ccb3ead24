"""MQTT-SN on the durable store: what an acknowledgement promised is there after a restart, for every dialect."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from embermq import Broker
from support.clauses import sn2
from support.server_process import ServerProcess
from support.sn_client import PROFILES, V12, A, B, Message, SnClient, Will
from support.wire import Wire

ALL = pytest.mark.parametrize("profile", PROFILES)


@contextmanager
def served(directory: Path) -> Iterator[Broker]:
    with Broker.in_thread(sn_port=0, data=directory) as broker:
        yield broker


def client_of(broker: Broker, profile: str, client_id: str = "client") -> SnClient:
    assert broker.sn_port is not None
    return SnClient(profile, ("127.0.0.1", broker.sn_port), client_id)


@sn2("MQTT-SN-4.26-1", "MQTT-SN-4.26-3")
@ALL
def test_retained_messages_survive_and_cleared_ones_do_not_come_back(tmp_path: Path, profile: str) -> None:
    with served(tmp_path) as broker, client_of(broker, profile) as publisher:
        publisher.connect()
        for topic_name in ("kept", "cleared", "replaced"):
            assert publisher.publish(f"a/{topic_name}", b"first", 1, retain=True) == 0
        publisher.publish("a/cleared", b"", 1, retain=True)
        publisher.publish("a/replaced", b"second", 2, retain=True)
    with served(tmp_path) as broker, client_of(broker, profile) as subscriber:
        subscriber.connect()
        assert subscriber.subscribe("a/#", 2).reason == 2
        assert sorted(subscriber.await_messages(2)) == [
            Message("a/kept", b"first", 1, True),
            Message("a/replaced", b"second", 2, True),
        ]
        assert subscriber.drain() == []


@ALL
def test_a_kept_session_and_its_queue_survive(tmp_path: Path, profile: str) -> None:
    with served(tmp_path) as broker, client_of(broker, profile) as subscriber:
        subscriber.connect(clean=False, expiry=600)
        subscriber.subscribe("a/+", 2)
        subscriber.disconnect()
        assert broker.port is not None
        with Wire((broker.host, broker.port)) as publisher:
            publisher.connect("publisher")
            for number in range(5):
                publisher.publish("a/b", b"%d" % number, qos=1 + number % 2)
    with served(tmp_path) as broker, client_of(broker, profile) as subscriber:
        subscriber.connect(clean=False, expiry=600)
        assert subscriber.await_messages(5) == [Message("a/b", b"%d" % n, 1 + n % 2) for n in range(5)]


@ALL
def test_a_sleeping_client_fetches_from_a_persistent_queue(tmp_path: Path, profile: str) -> None:
    with served(tmp_path) as broker, client_of(broker, profile) as sleeper:
        sleeper.connect(clean=False, expiry=600)
        sleeper.subscribe("a/b", 1)
        sleeper.sleep(60)
        assert broker.port is not None
        with Wire((broker.host, broker.port)) as publisher:
            publisher.connect("publisher")
            for number in range(5):
                publisher.publish("a/b", b"%d" % number, qos=1)
        messages, left = sleeper.wake()
        assert [message.payload for message in messages] == [b"%d" % number for number in range(5)]
        assert left in (0, -1)


@sn2("MQTT-SN-4.26-1")
def test_what_was_acknowledged_survives_kill_9_while_clients_are_connected_asleep_and_half_way(tmp_path: Path) -> None:
    """Clients of every profile are there when the server dies: active, asleep, in a will dialogue, before PUBREL."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        address = ("127.0.0.1", int(probe.getsockname()[1]))
    server = ServerProcess(tmp_path / "data", tmp_path / "log", {"sn.port": str(address[1])})
    with server, ExitStack() as stack:

        def client(profile: str, client_id: str) -> SnClient:
            return stack.enter_context(SnClient(profile, address, client_id))

        keepers = [client(profile, f"keeper{number}") for number, profile in enumerate(PROFILES)]
        for keeper in keepers:
            assert keeper.connect(clean=False, expiry=600).reason == 0
            keeper.subscribe("a/#", 2)
            keeper.acknowledging = False
        sleeper = client(A, "sleeper")
        sleeper.connect(clean=False, expiry=600, will=Will("will/sleeper", b"gone"))
        sleeper.subscribe("a/#", 1)
        sleeper.sleep(600)
        half = client(V12, "half")
        half.ask("CONNECT", bytes([0x0C, 1, 0, 60]) + b"half", "WILLTOPICREQ")
        half.ask("WILLTOPIC", b"\x30will/half", "WILLMSGREQ")
        publisher = client(B, "publisher")
        publisher.connect(clean=False, expiry=600)
        for number in range(4):
            assert publisher.publish(f"a/{number}", b"%d" % number, 1 + number % 2, retain=True) == 0
        unfinished = publisher.publish_bytes(publisher.reference("a/4"), b"4", 2, True, 900)
        publisher.ask("PUBLISH", unfinished, "PUBREC")
        server.restart()

        # Its PUBREC was promised: the copy of the message is no second one, and PUBREL still has its answer.
        publisher.connect(clean=False, expiry=600)
        publisher.ask("PUBLISH", bytes([unfinished[0] | 0x80]) + unfinished[1:], "PUBREC")
        publisher.ask("PUBREL", (900).to_bytes(2), "PUBCOMP")
        expected = [Message(f"a/{n}", b"%d" % n, 1 + n % 2) for n in range(4)] + [Message("a/4", b"4", 2)]
        for keeper in keepers:
            keeper.move()  # what the old server sent is not to be counted
            keeper.acknowledging = True
            assert keeper.connect(clean=False, expiry=600).session_present == (keeper.profile != V12)
            assert keeper.await_messages(5) == expected
            assert keeper.drain() == []
        assert sleeper.connect(clean=False, expiry=600).session_present
        assert [message.payload for message in sleeper.await_messages(5)] == [b"%d" % n for n in range(5)]
        half.send("WILLMSG", b"never whole")
        late = client(A, "late")
        late.connect()
        late.subscribe("#", 2)
        assert sorted(late.await_messages(5)) == [message._replace(retain=True) for message in expected]
        assert late.drain() == []
