"""`ember retained import --from`: moving in from a live broker, ours and Mosquitto."""

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from embermq.certificates import Authority
from support.ember_command import Done, ember, sentence, server, wire
from support.ports import free_port
from support.wire import PUBLISH, Wire, packet, publish, string

BINARY = bytes(range(256))
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
QUIET_S = 3.0  # long enough for a busy machine
QUIET_FEW_S = 0.1  # long enough for any: all that comes is written together with SUBACK


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a stopped server that nothing was published to yet."""
    with server(tmp_path / "data"):
        pass
    return tmp_path / "data"


def import_from(data: Path, url: str, *options: str, password: str | None = None, quiet_s: float = QUIET_S) -> Done:
    environment = {} if password is None else {"EMBERMQ_IMPORT_PASSWORD": password}
    given: tuple[str | Path, ...] = ("--quiet", str(quiet_s), *options, "--data", data)
    return ember("retained", "import", "--from", url, *given, environment=environment)


def payloads(data: Path, *topics: str) -> list[bytes]:
    return [ember("retained", "get", topic, "--raw", "--data", data).printed for topic in topics]


def count(data: Path, topic_filter: str = "#") -> int:
    return len(ember("retained", "ls", topic_filter, "--json", "--data", data).lines)


@contextmanager
def mosquitto(directory: Path) -> Iterator[int]:
    """A Mosquitto with its own defaults; its port."""
    assert MOSQUITTO is not None
    port = free_port()
    config = directory / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nsys_interval 1\nuser {_user()}\n")
    process = subprocess.Popen([MOSQUITTO, "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, "mosquitto does not start"
        yield port
    finally:
        process.kill()
        process.wait()


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
@pytest.mark.parametrize("runs", [True, False])
def test_everything_that_mosquitto_has_retained_moves_in(runs: bool, data: Path, tmp_path: Path) -> None:
    with mosquitto(tmp_path) as port:
        with Wire(("127.0.0.1", port)) as client:
            client.connect("filler")
            client.send(*(publish(f"t/{n % 50}/{n}", b"%d" % n, retain=True) for n in range(5_000)))
            client.publish("binary", BINARY, qos=2, retain=True)
            client.publish("ü/ä", "grüße".encode(), retain=True)
            client.publish("not/retained", b"1", qos=1)
        url = f"mqtt://127.0.0.1:{port}"
        if runs:
            with server(data):
                done = import_from(data, url)
        else:
            done = import_from(data, url)
        assert (done.code, done.text) == (0, "imported 5002 messages\n"), done
        assert done.errors == ""
        some = import_from(data, url, "--filter", "t/7/#", "--qos", "2")
        assert some.text == "imported 100 messages\n"
    assert count(data) == 5_002
    assert payloads(data, "binary", "ü/ä", "t/0/4950") == [BINARY, "grüße".encode(), b"4950"]


def test_our_own_messages_move_while_others_are_published(data: Path) -> None:
    with Broker.in_thread() as source:
        assert source.port is not None
        with wire(source, "filler") as client:
            for number in range(300):
                client.send(publish(f"a/{number}", b"old", retain=True))
            client.ping()
        stop = threading.Event()

        def live() -> None:
            with wire(source, "live") as client:
                while not stop.is_set():
                    client.publish("live/topic", b"not retained", qos=1)

        busy = threading.Thread(target=live)
        busy.start()
        try:
            done = import_from(data, f"mqtt://localhost:{source.port}/")
        finally:
            stop.set()
            busy.join()
    assert (done.code, done.text, done.errors) == (0, "imported 300 messages\n", "")
    assert count(data, "a/#") == count(data) == 300


def test_users_and_passwords(data: Path, tmp_path: Path) -> None:
    write_password(tmp_path / "passwords", "al/ice", b"s3:cret")
    access = FileAccess(password_file=tmp_path / "passwords", acl_file=None, allow_anonymous=False)
    with Broker.in_thread(access=access) as source:
        place = f"127.0.0.1:{source.port}"
        with wire(source, "filler", user_name="al/ice", password=b"s3:cret") as client:
            client.publish("a", b"1", qos=1, retain=True)
        for url, password in (
            (f"mqtt://al%2Fice@{place}", "s3:cret"),
            (f"mqtt://al%2Fice:s3%3Acret@{place}", None),
        ):
            done = import_from(data, url, password=password, quiet_s=QUIET_FEW_S)
            assert done.text == "imported 1 message\n"
        for url, password in (
            (f"mqtt://{place}", None),
            (f"mqtt://al%2Fice@{place}", "wrong"),
            (f"mqtt://al%2Fice:wrong@{place}", None),
        ):
            done = import_from(data, url, password=password)
            assert (done.code, done.text) == (2, "")
            assert done.errors.startswith(f"ember: mqtt://{place} refuses the connection: ")
            assert "wrong" not in done.errors.replace("password is wrong", "")


def test_tls(data: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    with Broker.in_thread(tls_port=0, certificate=pair.certificate, key=pair.key) as source:
        with wire(source, "filler") as client:
            client.publish("a", b"1", qos=1, retain=True)
        url = f"mqtts://localhost:{source.tls_port}"
        done = import_from(data, url, "--ca", str(authority.certificate), quiet_s=QUIET_FEW_S)
        assert done.text == "imported 1 message\n"
        refused = sentence(import_from(data, url))
        assert "self-signed certificate" in refused or "unable to get local issuer" in refused
        assert "name the authority that has signed the server's certificate with --ca" in refused
        assert "there is no such file" in sentence(import_from(data, url, "--ca", str(tmp_path / "none")))
        assert "no TLS connection" in sentence(import_from(data, f"mqtts://localhost:{source.port}"))


def test_what_is_no_broker_is_one_sentence(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer(reply: bytes) -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(reply)

        for reply, expected in (
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not answer as an MQTT server"),
            (packet(PUBLISH, 0, string("a")), "does not answer as an MQTT server"),
            (b"", "closed the connection"),
        ):
            peer = threading.Thread(target=answer, args=(reply,))
            peer.start()
            done = sentence(import_from(data, f"mqtt://127.0.0.1:{port}"))
            peer.join()
            assert done.startswith(f"mqtt://127.0.0.1:{port} {expected}")
    assert "cannot connect to mqtt://127.0.0.1" in sentence(import_from(data, f"mqtt://127.0.0.1:{port}"))
    assert "cannot connect to mqtt://host.invalid" in sentence(import_from(data, "mqtt://host.invalid"))


class CuttingShort:
    """A broker that says it has 5 retained messages and sends 2 of them, then goes on with live ones."""

    def __init__(self, reported: int, drop_after: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._reported = reported
        self._drop_after = drop_after
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection:
            connection.recv(1000)
            connection.sendall(bytes.fromhex("20020000"))
            connection.recv(1000)
            retained = [publish("a", b"1", retain=True), publish("b", b"1", retain=True)]
            # The messages may come before the SUBACK, and split anywhere.
            stream = retained[0] + bytes.fromhex("9003000100") + retained[1] + publish("c", b"live")
            connection.sendall(stream[:7])
            connection.sendall(stream[7:])
            if self._drop_after or not connection.recv(1000):
                return
            sys_messages = publish("$SYS/broker/retained messages/count", b"%d" % self._reported, retain=True)
            connection.sendall(bytes.fromhex("9003000200") + sys_messages)
            while connection.recv(1000):
                pass

    def join(self) -> None:
        self._thread.join()


def test_a_broker_that_cuts_a_wildcard_short_is_told_of(data: Path) -> None:
    broker = CuttingShort(reported=6)
    done = import_from(data, f"mqtt://127.0.0.1:{broker.port}", quiet_s=QUIET_FEW_S)
    broker.join()
    assert (done.code, done.text) == (0, "imported 2 messages\n")
    assert "reports 5 retained messages, 2 have come" in done.errors
    broker = CuttingShort(reported=3)
    done = import_from(data, f"mqtt://127.0.0.1:{broker.port}", quiet_s=QUIET_FEW_S)
    broker.join()
    assert (done.code, done.errors) == (0, "")


def test_a_broker_that_is_lost_leaves_what_has_come(data: Path) -> None:
    broker = CuttingShort(reported=6, drop_after=True)
    done = import_from(data, f"mqtt://127.0.0.1:{broker.port}")
    broker.join()
    assert (done.code, done.text) == (2, "imported 2 messages\n")
    assert done.errors == f"ember: mqtt://127.0.0.1:{broker.port} closed the connection\n"
    assert count(data) == 2
