"""Users and rights changed while real clients are connected: at once, durably, and with a record in the log."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from embermq.access.passwords import write_password
from embermq.broker.operator import AUDIT_TOPIC
from embermq.config import load
from embermq.embed import Broker, BrokerThread
from embermq.engines import CONTROL_SOCKET
from embermq.http.client import HttpClient
from support.ember_command import Done, ember, sentence
from support.user_client import UserClient

SETTINGS = """
[listeners]
port = 0
[store]
directory = "data"
[access]
password_file = "passwords"
acl_file = "acl"
"""
NOT_AUTHORIZED = 0x87


class Place:
    """A server with files of users and rights, and the commands of its operator."""

    def __init__(self, path: Path, broker: Broker) -> None:
        self.path = path
        self.broker = broker

    def client(self, user_name: str, password: str | None = None, **more: Any) -> UserClient:
        return UserClient(self.broker.port, f"of-{user_name}", user_name, password or user_name, **more)

    def access(self, *arguments: str, stdin: bytes = b"") -> Done:
        return ember("access", *arguments, "--data", self.path / "data", stdin=stdin)

    def audit(self) -> list[dict[str, Any]]:
        """The records of changes, from the log."""
        done = ember("log", "tail", "--data", self.path / "data", "--filter", AUDIT_TOPIC, "--json", "-n", "100")
        return [json.loads(json.loads(line)["payload"]) for line in done.lines]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ember.toml").write_text(SETTINGS)
    (tmp_path / "acl").write_text("# ours\nuser ann\nread,write a/#\nuser bob\nread,write #\n")
    for name in ("ann", "bob"):
        write_password(tmp_path / "passwords", name, name.encode())
    with BrokerThread(Broker.from_settings(load(tmp_path / "ember.toml"))) as broker:
        yield Place(tmp_path, broker)


def test_a_user_is_added_changed_and_removed_under_connected_clients(place: Place) -> None:
    with place.client("carl") as early:
        assert early.connect() == 0x86
    assert place.access("set", "carl", "--stdin", stdin=b"carl\n").text == "added carl\n"
    with place.client("bob") as bob, place.client("carl") as carl:
        assert (bob.connect(), carl.connect()) == (0, 0)
        assert place.access("set", "carl", "--stdin", stdin=b"other\n").text == "changed the password of carl\n"
        assert carl.ended() == NOT_AUTHORIZED
        with place.client("carl", "carl") as old, place.client("carl", "other", protocol=paho.MQTTv311) as new:
            assert (old.connect(), new.connect()) == (0x86, 0)
            assert place.access("delete", "carl").text == "removed carl\n"
            new.ended()
        assert bob.is_connected()
    listed = [json.loads(line)["user"] for line in place.access("users", "--json").lines]
    assert listed == ["ann", "bob"]
    assert (place.path / "passwords").stat().st_mode & 0o777 == 0o600


def test_rules_decide_at_once_about_connected_clients(place: Place) -> None:
    with place.client("ann") as ann, place.client("bob") as bob:
        assert (ann.connect(), bob.connect()) == (0, 0)
        assert (ann.subscribe("b/#"), ann.subscribe("a/#")) == (NOT_AUTHORIZED, 1)
        assert ann.publish("b/1", b"") == NOT_AUTHORIZED
        assert place.access("add", "user ann", "read,write b/#").text == "added\n"
        assert place.access("add", "user ann", "write,read b/#").text == "the list has this rule already\n"
        assert ann.subscribe("b/#") == 1
        bob.publish("b/2", b"now")
        assert ann.message() == ("b/2", b"now")
        assert place.access("remove", "user ann", "read,write b/#").text == "removed 1 rule\n"
        bob.publish("b/3", b"not any more")
        bob.publish("a/1", b"still")
        assert ann.message() == ("a/1", b"still")
    assert place.access("rules", "--text").text == (place.path / "acl").read_text()
    assert place.access("may", "ann", "read", "a/x").lines[0] == "allowed by the access list"
    assert place.access("may", "ann", "read", "b/x").code == 1


def test_a_wrong_list_changes_nothing_and_a_right_one_replaces_all(place: Place, tmp_path: Path) -> None:
    before = (place.path / "acl").read_text()
    assert sentence(place.access("replace", "-", stdin=b"all\nreed #\n")).startswith("the list, line 2: expected")
    assert sentence(place.access("add", "user ann", "read a/#/b")).endswith(
        "'#' is not the last character of the filter"
    )
    assert (place.path / "acl").read_text() == before
    assert place.access("replace", "-", stdin=b"# short\nall\nread #\n").text == "the access list has 1 rule now\n"
    with place.client("ann") as ann:
        assert ann.connect() == 0
        assert (ann.subscribe("#"), ann.publish("a/1", b"")) == (1, NOT_AUTHORIZED)


def test_each_change_is_in_the_log_with_who_when_and_from_where(place: Place) -> None:
    place.access("set", "carl", "--stdin", stdin=b"a secret\n")
    place.access("add", "user carl", "read c/#")
    sentence(place.access("delete", "nobody"))
    with place.client("bob") as bob:
        assert bob.connect() == 0
        assert bob.publish(AUDIT_TOPIC, b"forged") != 0
    found = place.audit()
    assert [{name: value for name, value in each.items() if name not in ("by", "from")} for each in found] == [
        {"change": "set user", "user": "carl"},
        {"change": "add rule", "section": "user carl", "rule": "read c/#"},
        {"change": "delete user", "user": "nobody"},
        {"change": "delete user", "user": "nobody", "failed": "passwords has no user 'nobody'"},
    ]
    assert all(each["by"].startswith("uid ") and each["from"] == "unix" for each in found)
    assert b"a secret" not in b"".join(
        path.read_bytes() for path in (place.path / "data" / "log").rglob("*") if path.is_file()
    )


def test_changes_at_the_same_time_are_all_in_force_when_they_are_answered(place: Place) -> None:
    wrong: list[str] = []

    def change(number: int) -> None:
        with HttpClient(place.path / "data" / CONTROL_SOCKET) as server:
            for word in "xyz":
                rule = {"section": f"user u{number}", "rule": f"read {word}/{number}"}
                server.post("/api/v1/access/rules/add", rule)
                found = server.get("/api/v1/access", user=f"u{number}", topic=f"{word}/{number}")
                wrong.extend([] if found["allowed"] else [str(rule)])

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(place.access("rules", "--json").lines) == 2 + 12
    assert len(place.audit()) == 12


def test_a_user_that_was_set_outlives_a_kill(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("")
    settings = '[access]\npassword_file = "passwords"\n[listeners]\nport = 0\n[store]\ndirectory = "data"\n'
    (tmp_path / "ember.toml").write_text(settings)
    command = [sys.executable, "-m", "embermq", "serve", "--config", "ember.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line == "ready\n" for line in process.stdout)
        with HttpClient(tmp_path / "data" / CONTROL_SOCKET) as server:
            server.post("/api/v1/users/set", {"user": "ann", "password": "wonder", "scram": False})
        process.kill()
    assert "ann:$argon2id$" in (tmp_path / "passwords").read_text()
    records = ember("log", "tail", "--data", tmp_path / "data", "--filter", AUDIT_TOPIC, "--json")
    assert [json.loads(json.loads(line)["payload"])["user"] for line in records.lines] == ["ann"]


def test_a_reload_ends_the_connections_of_users_that_are_gone(place: Place) -> None:
    with place.client("ann") as ann, place.client("bob") as bob:
        assert (ann.connect(), bob.connect()) == (0, 0)
        ember("passwd", place.path / "passwords", "ann", "--delete")
        assert bob.is_connected() and ann.publish("a/1", b"") < 0x80, "the file is not read yet"
        ember("reload", "--data", place.path / "data")
        assert ann.ended() == NOT_AUTHORIZED
        assert bob.is_connected()


def test_a_server_without_files_says_which_settings_give_them(tmp_path: Path) -> None:
    with Broker.in_thread(data=tmp_path / "data"):
        said = sentence(ember("access", "users", "--data", tmp_path / "data"))
    assert said == "this server has neither access.password_file nor access.acl_file"
