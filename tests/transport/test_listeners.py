"""Listeners: where the system has no epoll, the event loop accepts and reads."""

import socket

import pytest

from embermq import Broker, embed
from embermq.transport import listeners
from support.wire import Wire

PAYLOAD = b"x" * 1_000_000
SN_CONNECT = bytes.fromhex("07040401003c63")
SN_CONNACK = bytes.fromhex("030500")


@pytest.fixture
def _without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HAS_POLL", False)
    monkeypatch.setattr(embed, "HAS_POLL", False)


@pytest.mark.usefixtures("_without_epoll")
def test_clients_are_served_by_the_event_loop_where_there_is_no_epoll() -> None:
    with Broker.in_thread(port=0, sn_port=0) as broker:
        assert broker.port is not None and broker.sn_port is not None
        address = (broker.host, broker.port)
        with Wire(address) as publisher, Wire(address) as subscriber:
            subscriber.connect("s")
            subscriber.subscribe(("t", 1))
            publisher.connect("p")
            publisher.publish("t", PAYLOAD, qos=1)
            assert subscriber.receive_message().payload == PAYLOAD
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(10)
            client.sendto(SN_CONNECT, (broker.host, broker.sn_port))
            assert client.recv(100) == SN_CONNACK
