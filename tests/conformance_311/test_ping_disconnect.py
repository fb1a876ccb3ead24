"""PINGREQ and DISCONNECT (3.12 to 3.14)."""

import pytest

from support import wire
from support.clauses import v311
from support.wire import PINGREQ, PINGRESP, Join, Will


@v311("MQTT-3.12.4-1")
def test_every_pingreq_gets_a_pingresp(join: Join) -> None:
    client = join()
    client.send(wire.packet(PINGREQ, 0) * 5)
    assert [client.receive() for _ in range(5)] == [(PINGRESP, 0, b"")] * 5


@v311("MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
def test_a_pingreq_with_flags_ends_the_connection(join: Join, flags: int) -> None:
    client = join()
    client.send(wire.packet(PINGREQ, flags))
    client.assert_closed()


def test_a_disconnect_closes_the_connection(join: Join) -> None:
    client = join()
    client.send(wire.packet(wire.DISCONNECT, 0))
    client.assert_closed()


@v311("MQTT-3.14.1-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
def test_a_disconnect_with_flags_is_an_error_and_publishes_the_will(join: Join, space: str, flags: int) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    client = join(will=Will(f"{space}/will", b"gone"))
    client.send(wire.packet(wire.DISCONNECT, flags))
    client.assert_closed()
    assert watcher.receive_message().payload == b"gone"


@v311("MQTT-3.14.4-3")
def test_nothing_behind_a_disconnect_is_processed(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    client = join(will=Will(f"{space}/will", b"must not come"))
    client.send(wire.packet(wire.DISCONNECT, 0) + wire.publish(f"{space}/a", b"must not come either"))
    client.assert_closed()
    watcher.assert_silent()
