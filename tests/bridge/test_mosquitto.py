"""Bridges from this server to a real Mosquitto, where it is installed."""

import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from embermq import Broker
from embermq.bridge.plan import BridgePlan, Rule
from embermq.client.address import ServerAddress
from support.bridged import logged, numbered, publish_all, wait_until, wait_until_subscribed
from support.cut_line import CutLine
from support.ports import free_port
from support.wire import Wire

MOSQUITTO = shutil.which("mosquitto") or ("/usr/sbin/mosquitto" if Path("/usr/sbin/mosquitto").exists() else None)
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="the mosquitto server is not installed")
MESSAGES = 1_000


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[int]:
    """The port of a Mosquitto that takes everybody."""
    port = free_port()
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n")
    assert MOSQUITTO is not None
    process = subprocess.Popen([MOSQUITTO, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def joined(port: int, client_id: str, *filters: str) -> Wire:
    wire = Wire(("127.0.0.1", port))
    assert wire.connect(client_id).return_code == 0
    for each in filters:
        wire.subscribe((each, 2))
    return wire


def plan(port: int, is_mqtt5: bool) -> BridgePlan:
    return BridgePlan(
        name="m",
        address=ServerAddress("127.0.0.1", port),
        outgoing=(Rule("up/#", "", "site/", 2), Rule("both/#", "", "", 2)),
        incoming=(Rule("down/#", "from/", "", 2), Rule("both/#", "", "", 2)),
        is_mqtt5=is_mqtt5,
    )


@pytest.mark.parametrize("is_mqtt5", [True, False])
def test_what_is_retained_on_either_side_is_on_both_and_nothing_comes_back(
    mosquitto: int, tmp_path: Path, is_mqtt5: bool
) -> None:
    with closing(joined(mosquitto, "before")) as wire:
        wire.publish("down/1", b"waits", qos=1, retain=True)
    with Broker.in_thread(port=0, data=tmp_path / "data", bridges=[plan(mosquitto, is_mqtt5)]) as here:
        assert here.port is not None
        with closing(joined(here.port, "near", "#")) as near, closing(joined(mosquitto, "far", "#")) as far:
            assert near.receive_message()[:2] == ("from/down/1", b"waits")
            assert far.receive_message()[:2] == ("down/1", b"waits")
            near.publish("up/1", b"on", qos=2, retain=True)
            assert near.receive_message()[:2] == ("up/1", b"on")
            assert far.receive_message()[:2] == ("site/up/1", b"on")
            near.publish("both/1", b"near", qos=1, retain=True)
            assert near.receive_message()[:2] == far.receive_message()[:2] == ("both/1", b"near")
            far.publish("both/1", b"far", qos=1, retain=True)
            assert near.receive_message()[:2] == far.receive_message()[:2] == ("both/1", b"far")
            far.publish("down/1", b"", qos=1, retain=True)
            assert far.receive_message()[:2] == ("down/1", b"")
            assert near.receive_message()[:2] == ("from/down/1", b"")
            near.assert_silent()
            far.assert_silent()
        with closing(joined(here.port, "late", "#")) as late:
            found = {message.topic_name: message.payload for message in late.take_messages()}
        assert found == {"up/1": b"on", "both/1": b"far"}


@pytest.mark.parametrize("is_mqtt5", [True, False])
def test_a_cut_line_to_mosquitto_loses_and_repeats_nothing(mosquitto: int, tmp_path: Path, is_mqtt5: bool) -> None:
    expected = [b"%d" % number for number in range(MESSAGES)]
    data = tmp_path / "data"
    with (
        CutLine(lambda: mosquitto) as line,
        closing(joined(mosquitto, "far", "site/#")) as far,
        Broker.in_thread(port=0, data=data, bridges=[plan(line.port, is_mqtt5)]) as here,
    ):
        assert here.port is not None
        wait_until(lambda: here.bridge_facts()[0].state == "connected", "the bridge")
        wait_until_subscribed(mosquitto, data, "down/first", "from/down/first")
        line.cut_after(random.Random(2), 20_000, 5)
        publish_all(here.port, numbered("up/a", MESSAGES))
        assert [far.receive_message().payload for _ in range(MESSAGES)] == expected
        publish_all(mosquitto, numbered("down/a", MESSAGES), batch=20)  # more at a time it does not take
        wait_until(lambda: len(logged(data, "from/down/a")) >= MESSAGES, "all down")
        far.assert_silent()
        assert line.cuts >= 3
    assert logged(data, "from/down/a") == expected
