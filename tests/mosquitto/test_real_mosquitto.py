"""A real Mosquitto is moved, and its clients go on with the same addresses and passwords."""

import os
import pwd
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from embermq.certificates import Authority
from support.ember_command import ember
from support.ports import free_port
from support.wire import PUBCOMP, PUBLISH, PUBREC, PUBREL, Wire, ack, message_of, publish

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
PROGRAMS = [shutil.which(name, path=PATH) for name in ("mosquitto", "mosquitto_passwd", "mosquitto_pub")]
pytestmark = pytest.mark.skipif(None in PROGRAMS, reason="mosquitto is not installed (apt install mosquitto)")
WAIT_S = 60
USERS = {"alice": "secret of alice", "sensor7": "secret of a sensor", "guest": "g"}
RIGHTS = """\
user alice
topic readwrite home/#
topic deny home/safe
user guest
topic read home/+/temperature
pattern write devices/%u/#
pattern read devices/%u/%c
"""


class Place:
    """The files of a Mosquitto, and the ports that it and its successor have."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plain, self.tls, self.hub = free_port(), free_port(), free_port()
        Authority(directory, "ca").sign("server", ["localhost", "127.0.0.1"])
        for number, (user, password) in enumerate(USERS.items()):
            create = ["-c"] if number == 0 else []
            command = ["mosquitto_passwd", *create, "-b", str(directory / "passwd"), user, password]
            subprocess.run(command, check=True, capture_output=True, env={"PATH": PATH}, timeout=WAIT_S)
        (directory / "acl").write_text(RIGHTS)
        self.conf = directory / "mosquitto.conf"
        self.conf.write_text(
            f"listener {self.plain} 127.0.0.1\n"
            f"listener {self.tls} 127.0.0.1\ncertfile server.crt\nkeyfile server.key\n"
            "password_file passwd\nacl_file acl\n"
            f"persistence true\npersistence_location {directory}/\nuser {pwd.getpwuid(os.geteuid()).pw_name}\n"
            f"connection hub\naddress 127.0.0.1:{self.hub}\nremote_username site\nremote_password of-site\n"
            "topic garden/# out 1 home/ site7/\n"
        )
        (directory / "hub.conf").write_text(f"listener {self.hub} 127.0.0.1\nallow_anonymous true\n")

    @contextmanager
    def mosquitto(self) -> Iterator[None]:
        with self._running([str(PROGRAMS[0]), "-c", str(self.conf)], self.plain, self.tls):
            yield

    @contextmanager
    def hub_of_bridges(self) -> Iterator[None]:
        """Another Mosquitto, which knows nothing of the move."""
        with self._running([str(PROGRAMS[0]), "-c", str(self.directory / "hub.conf")], self.hub):
            yield

    @contextmanager
    def ember(self) -> Iterator[None]:
        config = str(self.directory / "new" / "ember.toml")
        with self._running([sys.executable, "-m", "embermq", "serve", "--config", config], self.plain, self.tls):
            yield

    @contextmanager
    def _running(self, command: list[str], *ports: int) -> Iterator[None]:
        """A server that listens at some ports, until it is told to stop."""
        log = self.directory / "log"
        with log.open("ab") as output:
            process = subprocess.Popen(command, cwd=self.directory, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + WAIT_S
            waiting = list(ports)
            while waiting:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", waiting[0])) == 0:
                        waiting.pop(0)
                        continue
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()

    def wire(self, client_id: str, user: str, clean: bool = True) -> Wire:
        client = Wire(("127.0.0.1", self.plain))
        answer = client.connect(client_id, user_name=user, password=USERS[user].encode(), clean=clean)
        assert answer.return_code == 0
        return client

    def pub(self, user: str, *arguments: str) -> int:
        """mosquitto_pub; its exit code."""
        command = ["mosquitto_pub", "-p", str(self.plain), "-u", user, "-P", USERS.get(user, "wrong"), *arguments]
        return subprocess.run(command, capture_output=True, timeout=WAIT_S).returncode

    def sub(self, user: str, *arguments: str) -> list[str]:
        """mosquitto_sub over TLS, to its end; the lines that it prints."""
        tls = ["-p", str(self.tls), "--cafile", str(self.directory / "ca.crt"), "-h", "localhost"]
        command = ["mosquitto_sub", *tls, "-u", user, "-P", USERS[user], "-v", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A Mosquitto with retained messages and sessions, moved while it is stopped."""
    place = Place(tmp_path_factory.mktemp("moved"))
    with place.mosquitto():
        place.sub("alice", "-i", "reader", "-c", "-q", "1", "-t", "home/#", "-E")
        place.sub("alice", "-V", "5", "-x", "1000", "-i", "reader5", "-c", "-q", "2", "-t", "home/+/door", "-E")
        holding = place.wire("holding", "alice", clean=False)
        holding.subscribe(("home/hall/light", 2))
        assert place.pub("alice", "-q", "1", "-r", "-t", "home/hall/temperature", "-m", "21.5") == 0
        assert place.pub("alice", "-q", "2", "-t", "home/hall/door", "-m", "open") == 0
        assert place.pub("alice", "-q", "2", "-t", "home/hall/door", "-m", "shut") == 0
        assert place.pub("alice", "-q", "1", "-r", "-t", "home/safe", "-m", "forbidden") == 0
        assert place.pub("alice", "-q", "2", "-t", "home/hall/light", "-m", "on") == 0
        assert holding.receive_message(answer=False).payload == b"on"
        holding.drop()
        sender = place.wire("sender", "alice", clean=False)
        sender.send(publish("home/hall/door", b"half", qos=2, packet_id=77))
        sender.expect(PUBREC, 77)  # Mosquitto has it, and gives it to nobody before PUBREL
        sender.drop()
    settings = ember("migrate", place.conf, "-o", place.directory / "new" / "ember.toml")
    assert settings.code == 0, settings
    assert f"ember migrate {place.directory}/mosquitto.db --config {place.directory}/new/ember.toml" in settings.text
    done = ember("migrate", place.directory / "mosquitto.db", "--config", place.directory / "new" / "ember.toml")
    assert done.code == 0, done
    assert "1 retained message, 4 sessions, 3 subscriptions, 8 queued messages" in done.text
    return place


@pytest.fixture(scope="module")
def successor(moved: Place) -> Iterator[Place]:
    with moved.hub_of_bridges(), moved.ember():
        yield moved


def test_each_user_logs_in_with_the_old_password_over_both_listeners(successor: Place) -> None:
    assert "$7$" in (successor.directory / "new" / "passwords").read_text()
    for user, password in USERS.items():
        assert successor.pub(user, "-q", "1", "-i", user, "-t", f"devices/{user}/x", "-m", "1") == 0
        client = paho.Client(CallbackAPIVersion.VERSION2, f"paho-{user}", protocol=paho.MQTTv5)
        client.username_pw_set(user, password)
        client.tls_set(str(successor.directory / "ca.crt"))
        answers: queue.Queue[object] = queue.Queue()
        client.on_connect = lambda _client, _data, _flags, reason, _properties: answers.put(reason.value)  # noqa: B023
        client.connect("localhost", successor.tls)
        client.loop_start()
        try:
            assert answers.get(timeout=WAIT_S) == 0
        finally:
            client.disconnect()
            client.loop_stop()
    assert "$7$" not in (successor.directory / "new" / "passwords").read_text()  # each has a stronger hash now
    assert "$7$" in (successor.directory / "passwd").read_text()  # Mosquitto's own file is as it was


def test_wrong_passwords_and_plain_text_to_the_tls_port_stay_out(successor: Place) -> None:
    assert successor.pub("nobody", "-q", "1", "-t", "home/x", "-m", "1") != 0
    with Wire(("127.0.0.1", successor.plain)) as client:
        assert client.connect("c", user_name="alice", password=b"no").return_code == 4
    with pytest.raises((ssl.SSLError, OSError, EOFError, AssertionError)), Wire(("127.0.0.1", successor.tls)) as client:
        client.connect("c", user_name="alice", password=USERS["alice"].encode())


def test_retained_messages_and_the_rights_to_them(successor: Place) -> None:
    assert successor.sub("guest", "-t", "home/#", "-W", "60", "-C", "1") == ["home/hall/temperature 21.5"]
    with successor.wire("sensor7", "sensor7") as sensor, successor.wire("w", "sensor7") as other:
        sensor.subscribe(("devices/sensor7/sensor7", 1))  # %c is its client id
        other.publish("home/hall/temperature", b"99", qos=1)  # acknowledged and dropped, as Mosquitto does
        other.publish("devices/sensor7/sensor7", b"mine", qos=1)
        assert sensor.receive_message().payload == b"mine"
    lines = successor.sub("guest", "-t", "home/hall/temperature", "-W", "60", "-C", "1")
    assert lines == ["home/hall/temperature 21.5"]


def test_sessions_go_on_with_their_queues(successor: Place) -> None:
    expected = ["home/hall/temperature 21.5", "home/hall/door open", "home/hall/door shut", "home/hall/light on"]
    # What the sender had not released at Mosquitto is published now, once: with its PUBREL nothing comes again.
    lines = successor.sub("alice", "-i", "reader", "-c", "-q", "1", "-t", "home/#", "-C", "5")
    assert lines == [*expected, "home/hall/door half"]
    lines = successor.sub(
        "alice", "-V", "5", "-x", "1000", "-i", "reader5", "-c", "-q", "2", "-t", "home/+/door", "-C", "3"
    )
    assert lines == ["home/hall/door open", "home/hall/door shut", "home/hall/door half"]


def test_what_was_in_flight_at_qos_2_comes_again_and_what_was_sent_is_not_published_twice(successor: Place) -> None:
    holding = Wire(("127.0.0.1", successor.plain))
    answer = holding.connect("holding", user_name="alice", password=USERS["alice"].encode(), clean=False)
    assert answer.session_present
    again = message_of(holding.expect(PUBLISH))
    assert (again.payload, again.qos, again.dup) == (b"on", 2, True)
    holding.answer(again)
    holding.subscribe(("home/hall/door", 1))
    sender = successor.wire("sender", "alice", clean=False)
    sender.send(publish("home/hall/door", b"half", qos=2, packet_id=77, dup=True))
    sender.expect(PUBREC, 77)
    sender.send(ack(PUBREL, 77))
    sender.expect(PUBCOMP, 77)
    sender.publish("home/hall/door", b"after", qos=1)
    assert holding.receive_message().payload == b"after"
    sender.close()
    holding.close()


def test_the_bridge_goes_on(successor: Place) -> None:
    with Wire(("127.0.0.1", successor.hub)) as there:
        assert there.connect("watcher").return_code == 0
        there.subscribe(("site7/garden/#", 1))
        assert successor.pub("alice", "-q", "1", "-t", "home/garden/pond", "-m", "frozen") == 0
        assert there.receive_message()[:2] == ("site7/garden/pond", b"frozen")
