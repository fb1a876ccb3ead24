"""A broker that breaks the rules: each attempt ends with a sentence, and the bridge goes on."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq import Broker
from embermq.bridge.facts import BridgeFacts
from embermq.bridge.plan import BridgePlan, Rule
from embermq.client.address import ServerAddress
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import (
    PUBACK,
    PUBREC,
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Subscribe,
)
from support.bridged import logged, wait_until


class Peer:
    """One connection of the bridge, read and written by a script."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.settimeout(60)
        self._decoder = Decoder(1 << 20, levels=(4, 5))
        self._packets: list[Packet] = []

    def send(self, *packets: Packet | bytes) -> None:
        self._socket.sendall(b"".join(each if isinstance(each, bytes) else encode(each, MQTT_5) for each in packets))

    def expect(self, kind: type[Packet]) -> Packet:
        while True:
            while not self._packets:
                data = self._socket.recv(65_536)
                assert data, f"the end instead of {kind.__name__}"
                self._packets = self._decoder.feed(data)
            packet = self._packets.pop(0)
            if isinstance(packet, kind):
                return packet

    def accept(self) -> None:
        self.expect(Connect)
        self.send(Connack(False))
        subscribe = self.expect(Subscribe)
        assert isinstance(subscribe, Subscribe)
        self.send(Suback(subscribe.packet_id, [2] * len(subscribe.requests)))


@contextmanager
def bridged_to(data: Path, script: Callable[[Peer], None]) -> Iterator[Broker]:
    """A server with a bridge to a broker that runs a script with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        script(Peer(connection))
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(65_536):  # closed with something unread, what was sent may be lost
                            pass
                    except (OSError, AssertionError):
                        continue

        serving = threading.Thread(target=serve)
        serving.start()
        rule = (Rule("x/#", "", "", 2),)
        plan = BridgePlan(
            name="b",
            address=ServerAddress("127.0.0.1", listener.getsockname()[1]),
            outgoing=(Rule("up/#", "", "", 2),),
            incoming=rule,
        )
        try:
            with Broker.in_thread(port=0, data=data, bridges=[plan]) as broker:
                yield broker
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            serving.join()


def facts(broker: Broker) -> BridgeFacts:
    (found,) = broker.bridge_facts()
    return found


SCRIPTS: dict[str, tuple[Callable[[Peer], None], str]] = {
    "another packet before CONNACK": (lambda peer: peer.send(Publish("x/1", b"")), "does not answer CONNECT"),
    "a refusal": (lambda peer: peer.send(Connack(False, 0x87)), "refuses the connection: not authorized"),
    "MQTT 3.1.1": (lambda peer: peer.send(b"\x20\x02\x00\x01"), 'set mqtt = "3.1.1"'),
    "a second CONNACK": (lambda peer: (peer.accept(), peer.send(Connack(False))), "sends a Connack"),  # type: ignore[func-returns-value, dict-item]
    "its end": (lambda peer: (peer.accept(), peer.send(Disconnect(0x8B))), "server shutting down"),  # type: ignore[func-returns-value, dict-item]
    "no MQTT": (lambda peer: (peer.accept(), peer.send(b"\xff" * 50)), "does not answer as an MQTT server"),  # type: ignore[func-returns-value, dict-item]
    "a packet that is too large": (
        lambda peer: (peer.accept(), peer.send(b"\x30\xff\xff\xff\x7f" + bytes(1_000))),  # type: ignore[func-returns-value, dict-item]
        "does not answer as an MQTT server",
    ),
}


def _subscribe_id(peer: Peer) -> int:
    peer.send(Connack(False))
    subscribe = peer.expect(Subscribe)
    assert isinstance(subscribe, Subscribe)
    return subscribe.packet_id


SCRIPTS["another number of reasons"] = (
    lambda peer: peer.send(Suback(_subscribe_id(peer), [0, 0, 0])),
    "answers SUBSCRIBE with another number of reasons",
)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_broken_rule_is_a_sentence(name: str, tmp_path: Path) -> None:
    script, expected = SCRIPTS[name]
    with bridged_to(tmp_path / "data", script) as broker:
        wait_until(lambda: expected in facts(broker).error, expected)
        assert "internal error" not in facts(broker).error
        assert facts(broker).counters.failures >= 1


def test_what_nobody_asked_for_is_answered_and_the_rest_goes_on(tmp_path: Path) -> None:
    answers: list[tuple[int, int]] = []

    def script(peer: Peer) -> None:
        peer.accept()
        peer.send(
            Publish("$SYS/x", b"not ours", 1, packet_id=1),
            Publish("other", b"no rule", 1, packet_id=2),
            Publish("x/2", b"good", 2, packet_id=3),
            Acknowledgement(PUBREC, 77),  # of nothing that was sent
            Acknowledgement(PUBACK, 78),
        )
        while len(answers) < 3:
            answer = peer.expect(Acknowledgement)
            assert isinstance(answer, Acknowledgement)
            if answer.packet_type in (PUBACK, PUBREC):
                answers.extend((answer.packet_id + number, answer.reason) for number in range(answer.count))
        peer.expect(Disconnect)

    with bridged_to(tmp_path / "data", script) as broker:
        wait_until(lambda: len(answers) == 3, "the answers")
        assert sorted(answers) == [(1, 0), (2, 0), (3, 0x10)]
        assert logged(tmp_path / "data", "x/") == [b"good"]
        assert (facts(broker).state, facts(broker).counters.unmatched) == ("connected", 2)
