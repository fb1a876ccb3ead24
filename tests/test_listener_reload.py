"""A reload opens, closes and changes `[[listeners]]`, and leaves the clients of others alone."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.access.passwords import write_password
from embermq.certificates import Authority
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from support.ember_command import Done, ember
from support.ports import free_port
from support.wire import Connack, Wire

ACCEPTED = Connack(0, 0)


def tcp(port: int, more: str = "") -> str:
    return f"[[listeners]]\nkind = 'tcp'\nport = {port}\n{more}"


class Served:
    """A server whose settings file changes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "ember.toml"
        self.broker: Broker | None = None

    def write(self, *listeners: str, head: str = "") -> None:
        self.file.write_text(f"{head}[store]\ndirectory = '{self.directory}/data'\n" + "".join(listeners))

    def start(self) -> BrokerThread:
        self.broker = Broker.from_settings(load(self.file), lambda: load(self.file))
        return BrokerThread(self.broker)

    def reload(self) -> Done:
        return ember("reload", "--data", self.directory / "data")

    def names(self) -> list[str]:
        assert self.broker is not None
        return [each.name for each in self.broker.listeners()]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    yield Served(tmp_path)


def connected(port: int, client_id: str = "c") -> Wire:
    client = Wire(("127.0.0.1", port))
    assert client.connect(client_id) == ACCEPTED
    return client


def is_closed(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_listeners_are_opened_and_closed_and_others_do_not_notice(served: Served) -> None:
    first, second, third = free_port(), free_port(), free_port()
    served.write(tcp(first), tcp(second))
    with served.start():
        stays, goes = connected(first, "stays"), connected(second, "goes")
        stays.subscribe("t")
        served.write(tcp(first), tcp(third))
        done = served.reload()
        assert done.code == 0, done
        assert sorted(done.lines[2:]) == sorted(
            [f"listener tcp-{second} was closed", f"listener tcp-{third} was opened"]
        )
        goes.assert_closed()
        assert is_closed(second)
        with connected(third, "new") as new:
            new.publish("t", b"x", qos=1)
            assert stays.receive_message().payload == b"x"
        assert served.reload().lines[2:] == []  # nothing more to do, and nothing to say
        assert sorted(served.names()) == sorted([f"tcp-{first}", f"tcp-{third}"])
        stays.close()


def test_a_changed_listener_has_its_new_settings_at_once(served: Served) -> None:
    port, other = free_port(), free_port()
    served.write(tcp(port), tcp(other))
    with served.start():
        before, stays = connected(port, "before"), connected(other, "stays")
        served.write(tcp(port, "limits = { packet_bytes_max = 128 }\n"), tcp(other))
        assert served.reload().lines[2:] == [f"listener tcp-{port} was changed"]
        before.assert_closed()
        with connected(port) as after:
            after.send(b"\x30\xff\x01" + b"\0" * 255)
            after.assert_closed()
        stays.ping()
        stays.close()


def test_a_certificate_is_read_for_a_new_listener(served: Served) -> None:
    port, tls = free_port(), free_port()
    served.write(tcp(port))
    pair = f"certificate = '{served.directory}/server.crt'\nkey = '{served.directory}/server.key'\n"
    with served.start():
        served.write(tcp(port), f"[[listeners]]\nkind = 'tls'\nport = {tls}\n{pair}")
        done = served.reload()
        assert done.code == 2
        assert "not reloaded, the old settings stay in use: " in done.errors
        assert served.names() == [f"tcp-{port}"]
        Authority(served.directory, "ca").sign("server", ["localhost"])
        assert served.reload().lines[2:] == [f"listener tls-{tls} was opened"]
        assert not is_closed(tls)
        served.write(tcp(port))
        assert served.reload().lines[2:] == [f"listener tls-{tls} was closed"]
        (served.directory / "server.crt").unlink()  # nobody needs it any more
        assert served.reload().code == 0


def test_a_port_that_is_taken_leaves_the_others_as_they_are(served: Served) -> None:
    port, changed = free_port(), free_port()
    served.write(tcp(port), tcp(changed, "name = 'moving'\n"))
    with served.start(), socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        stays = connected(port)
        served.write(tcp(port), tcp(taken, "name = 'moving'\n"), tcp(taken, "name = 'new'\nhost = '127.0.0.1'\n"))
        assert served.reload().lines[2:-1] == []  # the file is wrong: two listeners at one place
        served.write(tcp(port), tcp(taken, "name = 'moving'\n"))
        done = served.reload()
        assert done.code == 1
        assert done.errors == (
            f"ember: listener moving: cannot listen on 127.0.0.1:{taken}: Address already in use; stop what listens"
            " there, or choose another address; it stays as it was\n"
        )
        connected(changed, "again").close()
        stays.ping()
        stays.close()
    assert is_closed(port)


def test_a_new_listener_has_the_users_of_the_server(served: Served) -> None:
    port, second = free_port(), free_port()
    write_password(served.directory / "passwords", "ann", b"secret")
    head = f"[access]\npassword_file = '{served.directory}/passwords'\n"
    served.write(tcp(port), head=head)
    with served.start():
        served.write(tcp(port), tcp(second), head=head)
        assert served.reload().lines[2:] == [f"listener tcp-{second} was opened"]
        with Wire(("127.0.0.1", second)) as client:
            assert client.connect("c").return_code == 5
        with Wire(("127.0.0.1", second)) as client:
            assert client.connect("c", user_name="ann", password=b"secret") == ACCEPTED
        served.write(tcp(port), tcp(second, "allow_anonymous = true\n"), head=head)
        assert served.reload().lines[2:] == [f"listener tcp-{second} was changed"]
        connected(second).close()


def test_what_waits_for_a_restart_is_said(served: Served) -> None:
    port, second = free_port(), free_port()
    (served.directory / "p").write_text("")
    own = f"password_file = '{served.directory}/p'\n"
    served.write(tcp(port))
    with served.start():
        served.write(tcp(port), tcp(second, own), f"[[listeners]]\nkind = 'udp'\nport = {second}\n")
        assert served.reload().lines[2:] == [
            f"needs a restart: listener tcp-{second} is new, and has users or rights of its own",
            f"needs a restart: listener udp-{second} is new, and it is for MQTT-SN",
        ]
        served.write(tcp(port), tcp(second), head="[access]\nallow_anonymous = true\n")
        assert served.reload().lines[2:] == [
            "needs a restart: access.allow_anonymous is not set, the settings say true",
            f"needs a restart: listener tcp-{second} is new, and settings of [access] have changed too",
        ]
        assert served.names() == [f"tcp-{port}"]
        served.write("[listeners]\nport = 0\n")
        assert any("listeners." in line for line in served.reload().lines)
        connected(port).close()
