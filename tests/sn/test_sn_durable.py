"""MQTT-SN on the durable store: what an acknowledgement promised is there after a restart, for every dialect."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clauses import sn2
from embermq import Broker
from sn_client import PROFILES, Message, SnClient
from wire import Wire

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
def test_a_sleeper_fetches_from_a_lasting_queue(tmp_path: Path, profile: str) -> None:
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
