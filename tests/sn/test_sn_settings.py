"""The settings of MQTT-SN: the file, the flag, the start-up line."""

import asyncio
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embermq import Broker
from embermq.config import load
from embermq.errors import ConfigError
from embermq.protocol.sn.settings import SnSettings
from embermq.protocol.sn.wire.profiles import B
from support.sn_client import V12, Message, SnClient


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "ember.toml"
    path.write_text(text)
    return path


def test_the_defaults_of_the_file_are_the_engines_own() -> None:
    configured, own = load().sn.engine(65_535), SnSettings()
    assert configured == own
    assert load().sn.port is None


def test_a_file_sets_all_of_it(tmp_path: Path) -> None:
    text = (
        '[sn]\nport = 0\nprofile = "2.0-b"\nretry_ms = 10\npredefined = { 1 = "a/b", 2 = "a/c" }\nadvertise_s = 900\n'
    )
    settings = load(written(tmp_path, text)).sn
    engine = settings.engine(65_535)
    assert (settings.port, engine.profiles, engine.pubwos_profile) == (0, (B,), B)
    assert (engine.retry_ms, engine.predefined) == (10, {1: "a/b", 2: "a/c"})
    assert settings.group() == ("225.1.1.1", 1883)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[sn]\npredefined = { 0 = "a" }', "sn.predefined.0"),
        ('[sn]\npredefined = { 65535 = "a" }', "sn.predefined.65535"),
        ('[sn]\npredefined = { 1 = "a/+" }', "sn.predefined.1: expected a topic name"),
        ('[sn]\nprofile = "2.1"', "sn.profile: expected 'auto'"),
        ("[sn]\nwindow = 0", "sn.window: expected greater than or equal to 1"),
        ('[sn]\nprofile = "2.0"\nsessionless_profile = "2.0-w"', 'sn.sessionless_profile is "2.0-w"'),
        ('[sn]\nmulticast_group = "10.1.1.1:1883"', "sn.multicast_group: expected a multicast address"),
        ('[sn]\nmulticast_group = "999.1.1.1:1883"', "sn.multicast_group: expected a multicast address"),
        ('[sn]\nmulticast_group = "225.1.1.1:70000"', "sn.multicast_group: expected a multicast address"),
        ('[sn]\nmulticast_group = "225.1.1.1"', "sn.multicast_group: expected a multicast address"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text))
    assert expected in str(caught.value)


def test_udp_counts_as_reachable_from_other_machines() -> None:
    flags = {"listeners": {"host": "0.0.0.0", "tcp": False, "unix_path": "x.sock"}}
    load(None, flags)
    with pytest.raises(ConfigError, match="reachable from other machines"):
        load(None, {**flags, "sn": {"port": 1884}})


def test_a_broker_may_listen_for_mqtt_sn_only() -> None:
    async def serve() -> None:
        async with Broker(port=None, sn_port=0) as broker:
            assert broker.sn_port

    asyncio.run(serve())


def test_the_command_says_where_it_listens_and_serves(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "embermq", "serve", "--memory", "--port", "0", "--sn-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        assert server.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "ready\n":
            line = server.stdout.readline()
            assert line, lines
            lines.append(line)
        found = re.search(r"mqtt-sn://127\.0\.0\.1:(\d+) \(UDP\), auto", "".join(lines))
        assert found is not None
        with SnClient(V12, ("127.0.0.1", int(found[1])), "command") as client:
            client.connect()
            client.subscribe("a/b")
            client.publish("a/b", b"x")
            assert client.await_messages(1) == [Message("a/b", b"x")]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
