"""A real Mosquitto that bridges to the server, where it is installed."""

import logging
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import Broker
from support.ports import free_port
from support.wire import PUBLISH, Connack, Wire, message_of

MOSQUITTO = shutil.which("mosquitto") or ("/usr/sbin/mosquitto" if Path("/usr/sbin/mosquitto").exists() else None)
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="the mosquitto server is not installed")


def joined(port: int, client_id: str) -> Wire:
    wire = Wire(("127.0.0.1", port))
    assert wire.connect(client_id) == Connack(0, 0)
    return wire


@pytest.fixture(params=["mqttv31", "mqttv311", "mqttv50"])
def bridged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Broker, int]]:
    """The server, and the port of a Mosquitto that passes all topics below `t` on, both ways."""
    port = free_port()
    settings = tmp_path / "mosquitto.conf"
    with Broker.in_thread(port=0) as broker:
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nconnection name\naddress 127.0.0.1:{broker.port}\n"
            f"topic t/# both 1\nbridge_protocol_version {request.param}\ncleansession true\n"
        )
        assert MOSQUITTO is not None
        process = subprocess.Popen(
            [MOSQUITTO, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield broker, port
        finally:
            process.terminate()
            process.wait(60)


def wait_for_bridge(port: int) -> None:
    """Mosquitto says in a retained message that its bridge is connected."""
    deadline_s = time.monotonic() + 60
    while True:
        try:
            watcher = joined(port, "watcher")
            break
        except OSError:  # it does not listen yet
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)
    watcher.subscribe("$SYS/broker/connection/#")
    while message_of(watcher.expect(PUBLISH)).payload != b"1":
        pass
    watcher.close()


def test_messages_pass_both_ways_and_nothing_is_logged(
    bridged: tuple[Broker, int], caplog: pytest.LogCaptureFixture
) -> None:
    broker, port = bridged
    assert broker.port is not None
    wait_for_bridge(port)
    here, there = joined(broker.port, "here"), joined(port, "there")
    here.subscribe("t/#")
    there.subscribe("t/#")
    there.publish("t/up", b"from there", qos=1, retain=True)
    assert here.receive_message()[:2] == ("t/up", b"from there")
    assert there.receive_message()[:2] == ("t/up", b"from there")
    here.publish("t/down", b"from here", qos=1, retain=True)
    assert there.receive_message()[:2] == ("t/down", b"from here")
    assert here.receive_message()[:2] == ("t/down", b"from here")
    # It has not come back from the other side, and it is retained there.
    here.assert_silent()
    there.assert_silent()
    late = joined(port, "late")
    late.subscribe("t/down")
    message = late.receive_message()
    assert (message.payload, message.retain) == (b"from here", True)
    for wire in (here, there, late):
        wire.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
