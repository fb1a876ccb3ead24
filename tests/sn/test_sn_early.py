"""Profile 2.0-w, the early draft that shipped in products, over real UDP: bytes written by hand from its layouts."""

import socket
from collections.abc import Callable, Iterator

import pytest

from embermq import Broker
from support.sn_client import A, SnClient, frame, pubwos, unframe
from support.wire import Wire

Sn = Callable[..., SnClient]
Mqtt = Callable[..., Wire]


class Early:
    """One client of 2.0-w; `ask` sends a packet and returns the type and body of the next that comes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect(("127.0.0.1", port))
        self.socket.settimeout(60)

    def send(self, code: int, body: bytes = b"") -> None:
        self.socket.send(frame(code, body))

    def receive(self) -> tuple[int, bytes]:
        return unframe(self.socket.recv(65_535))

    def ask(self, code: int, body: bytes = b"") -> tuple[int, bytes]:
        self.send(code, body)
        return self.receive()

    def connect(self, client_id: bytes = b"early", flags: int = 1, expiry: int = 0) -> tuple[int, bytes]:
        """Flags: 1 clean start, 2 will. Keep alive of 60 s, no maximum packet size."""
        return self.ask(0x04, bytes([flags, 2, 0, 60]) + expiry.to_bytes(4) + b"\0\0" + client_id)


@pytest.fixture
def early(sn_broker: Broker) -> Iterator[Early]:
    assert sn_broker.sn_port is not None
    client = Early(sn_broker.sn_port)
    with client.socket:
        yield client


def test_it_connects_and_is_told_whether_its_session_was_there(early: Early) -> None:
    assert early.connect(flags=0, expiry=600) == (0x05, bytes.fromhex("00 00 00000000"))
    assert early.ask(0x18, b"\0")[0] == 0x18
    assert early.connect(flags=0, expiry=601) == (0x05, bytes.fromhex("00 01 00000000"))
    assert early.ask(0x16) == (0x17, b"")


def test_an_assigned_client_id_is_told(early: Early) -> None:
    code, body = early.connect(b"")
    assert (code, body[:6]) == (0x05, bytes(6))
    assert body[6:].startswith(b"sn-")


def test_it_publishes_at_every_qos_by_alias_and_by_name(early: Early, mqtt: Mqtt) -> None:
    watcher = mqtt()
    watcher.subscribe("w/#")
    early.connect()
    code, body = early.ask(0x0A, b"\0\0" + b"\0\1" + b"w/a")  # REGISTER
    assert (code, body[0] & 3, body[3:]) == (0x0B, 0, b"\0\1\0")
    alias = body[1:3]
    early.send(0x0C, bytes([0x00]) + alias + b"zero")
    assert early.ask(0x0C, bytes([0x20, 0, 2]) + alias + b"one") == (0x0D, b"\0\2\0")
    assert early.ask(0x0C, bytes([0x43, 0, 3, 0, 3]) + b"w/b" + b"two") == (0x0F, b"\0\3")
    assert early.ask(0x10, b"\0\3") == (0x0E, b"\0\3")
    got = [watcher.receive_message() for _ in range(3)]
    assert [(message.topic_name, message.payload, message.qos) for message in got] == [
        ("w/a", b"zero", 0),
        ("w/a", b"one", 1),
        ("w/b", b"two", 2),
    ]


def test_subscription_options_and_retained_messages(early: Early, mqtt: Mqtt, sn: Sn) -> None:
    publisher = mqtt()
    publisher.publish("w/a", b"kept", qos=1, retain=True)
    early.connect()
    # Retain Handling 2, QoS 1, Retain As Published, full name: no retained message, then a live one as published.
    code, body = early.ask(0x12, bytes([0x20 | 0x10 | 0x08 | 3, 0, 1]) + b"w/+")
    assert (code, body) == (0x13, bytes([0x20, 0, 0, 0, 1, 0]))
    publisher.publish("w/a", b"live", qos=1, retain=True)
    code, body = early.receive()
    assert (code, body[0], body[5:]) == (0x0C, 0x20 | 0x10 | 3, b"w/alive")
    early.send(0x0D, body[1:3] + b"\0")
    # Retain Handling 1: the subscription is there already. Retain Handling 0: what is retained comes.
    assert early.ask(0x12, bytes([0x20 | 0x04 | 3, 0, 2]) + b"w/+")[0] == 0x13
    assert early.ask(0x16) == (0x17, b"")
    assert early.ask(0x12, bytes([0x20 | 3, 0, 3]) + b"w/+")[0] == 0x13
    code, body = early.receive()
    assert (code, body[0], body[5:]) == (0x0C, 0x20 | 0x10 | 3, b"w/alive")


def test_its_will_is_asked_for_and_published(early: Early, mqtt: Mqtt) -> None:
    watcher = mqtt()
    watcher.subscribe("will/#")
    assert early.connect(b"doomed", flags=3) == (0x06, b"")
    assert early.ask(0x07, b"\x20will/w") == (0x08, b"")
    assert early.ask(0x09, b"gone") == (0x05, bytes(6))
    mqtt("doomed")
    assert early.receive()[0] == 0x18
    message = watcher.receive_message()
    assert (message.topic_name, message.payload, message.qos) == ("will/w", b"gone", 1)


def test_it_sleeps_and_fetches_a_few_at_a_time(early: Early, mqtt: Mqtt) -> None:
    publisher = mqtt()
    early.connect(b"early")
    early.ask(0x12, bytes([0x23, 0, 1]) + b"w/#")
    assert early.ask(0x18, bytes([0x05]) + (60).to_bytes(4))[0] == 0x18  # keeping its aliases
    for number in range(3):
        publisher.publish("w/a", b"%d" % number, qos=1)
    early.send(0x16, bytes([2]) + b"early")
    for number in range(2):
        code, body = early.receive()
        assert (code, body[5:]) == (0x0C, b"w/a%d" % number)
        early.send(0x0D, body[1:3] + b"\0")
    assert early.receive() == (0x17, b"\1")


@pytest.mark.parametrize("sn_options", [{"sessionless_profile": "2.0-w"}])
def test_a_message_without_a_session_is_read_as_set(early: Early, sn: Sn, sn_options: dict[str, str]) -> None:
    watcher = sn(A, "watcher")
    watcher.subscribe("w/x", 1)
    watcher.subscribe("predefined/one", 1)
    early.send(0x11, bytes([2, 0x63, 0, 3]) + b"w/x" + b"hi")
    early.send(0x11, bytes([2, 0x61, 0, 1]) + b"there")
    assert [(message.topic_name, message.payload) for message in watcher.await_messages(2)] == [
        ("w/x", b"hi"),
        ("predefined/one", b"there"),
    ]


def test_without_the_setting_a_message_without_a_session_is_read_as_the_draft_of_2024(early: Early, sn: Sn) -> None:
    watcher = sn(A, "watcher")
    watcher.subscribe("#", 1)
    early.send(0x11, bytes([2, 0x63, 0, 3]) + b"w/x" + b"hi")
    early.socket.send(pubwos(A, "w/x", b"read"))
    assert [message.payload for message in watcher.await_messages(1)] == [b"read"]


@pytest.mark.parametrize("sn_options", [{"profile": "2.0"}])
def test_where_the_drafts_are_pinned_it_is_refused(early: Early, sn_options: dict[str, str]) -> None:
    code, body = early.connect()
    assert (code, body[0]) == (0x05, 0x84)
