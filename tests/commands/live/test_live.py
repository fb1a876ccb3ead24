"""`ember clients`, `ember sessions`, `ember top` and `ember reload` with a running server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq import Broker
from embermq.access.passwords import write_password
from embermq.commands.live.top import view
from support.ember_command import Done, ember, sentence, server, wire
from support.server_process import ServerProcess
from support.terminal import Terminal
from support.wire import Wire

HOSTILE = "\x1b[2Jscreen\u202e"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(data: Path) -> Iterator[Broker]:
    with server(data) as running:
        yield running


def run(data: Path, *arguments: str) -> Done:
    return ember(*arguments, "--data", data)


def objects(data: Path, *arguments: str) -> list[dict[str, object]]:
    done = run(data, *arguments, "--json")
    assert done.code == 0, done
    return [json.loads(line) for line in done.lines]


def test_clients_are_listed_and_disconnected(broker: Broker, data: Path) -> None:
    assert objects(data, "clients") == []
    with wire(broker, "sensor-1") as sensor, wire(broker, HOSTILE) as screen:
        screen.subscribe(("a/#", 1))
        found = objects(data, "clients")
        assert {client["client_id"] for client in found} == {"sensor-1", HOSTILE}
        table = run(data, "clients")
        assert all(line.isprintable() for line in table.lines) and table.lines[0].startswith("CLIENT ")
        assert [client["client_id"] for client in objects(data, "clients", "sensor-1")] == ["sensor-1"]
        absent = run(data, "clients", "none")
        assert (absent.code, absent.errors) == (1, "ember: none is not connected\n")
        ended = run(data, "clients", "--disconnect", "sensor-1", "--disconnect", "none")
        assert (ended.code, ended.text, ended.errors) == (
            1,
            "disconnected 1 client\n",
            "ember: none is not connected\n",
        )
        sensor.assert_closed()


def test_sessions_are_listed_with_the_log_that_they_hold_and_ended(broker: Broker, data: Path) -> None:
    with wire(broker, "idle", clean=False) as idle:
        idle.subscribe(("a/#", 1))
    with wire(broker, "sensor-1") as sensor:
        sensor.publish("a/b", b"x" * 1000, qos=1)
        found = objects(data, "sessions")
        assert [session["client_id"] for session in found] == ["idle", "sensor-1"]
        assert found[0]["owed"] == 1 and int(str(found[0]["log_bytes"])) > 1000
        lines = run(data, "sessions").lines
        assert lines[0].split() == ["CLIENT", "USER", "OWED", "DROPPED", "HOLDS", "ABSENT", "EXPIRES", "IN", "FILTERS"]
        assert lines[1].startswith("idle ") and "KiB" in lines[1] and "29d 23h" in lines[1]
        assert run(data, "sessions", "--end", "idle").text == "ended 1 session\n"
        assert [session["client_id"] for session in objects(data, "sessions")] == ["sensor-1"]


@pytest.mark.parametrize("command", ["clients", "sessions", "top", "reload"])
def test_without_a_server_it_is_one_sentence(data: Path, command: str) -> None:
    with server(data):
        pass
    assert sentence(run(data, command)) == f"no server runs on {data}"
    assert "is not the data directory of a server" in sentence(run(data / "none", command))


def test_top_as_json_and_without_a_terminal(broker: Broker, data: Path) -> None:
    with wire(broker, HOSTILE) as client:
        client.publish("a", b"1", qos=1)
        first, second = objects(data, "top", "-n", "2", "--every", "0.2")
        assert first["rates"] is None and first["clients"] == 1
        assert isinstance(second["rates"], dict) and second["rates"]["messages in"] == 0
        done = run(data, "top", "-n", "1")
        assert done.code == 0 and "1 client, 1 session" in done.text
        assert all(line.isprintable() for line in done.lines)


def test_top_fits_the_terminal(broker: Broker, data: Path) -> None:
    (found,) = objects(data, "top", "-n", "1")
    client = {"client_id": "c" * 200, "queued": 1, "unread_bytes": 2, "in_flight": 3, "slowed_by": ["x" * 100]}
    lines = view(found, None, [client] * 100, 60, 20)
    assert len(lines) == 19 and max(map(len, lines)) == 60


def test_top_in_a_terminal_shows_clients_come_and_ends_with_q(broker: Broker, data: Path) -> None:
    with Terminal(["top", "--every", "0.2", "--data", data]) as terminal:
        terminal.read_until("0 clients, 0 sessions")
        with wire(broker, HOSTILE):
            terminal.read_until("\\x1b[2Jscreen\\u202e")
            terminal.read_until("1 client, 1 session")  # asked for before, so perhaps in the next view
        assert "\u202e" not in terminal.output and "\x1b[2J" not in terminal.output
        terminal.press("q")
        assert terminal.process.wait(60) == 0
        terminal.read_rest()
        assert terminal.output.endswith("\x1b[?25h\x1b[?1049l")


def test_top_in_a_terminal_ends_with_ctrl_c(broker: Broker, data: Path) -> None:
    with Terminal(["top", "--every", "0.2", "--data", data]) as terminal:
        terminal.read_until("0 clients")
        terminal.press("\x03")
        assert terminal.process.wait(60) in (0, 130)


def test_reload_puts_new_users_in_force(tmp_path: Path, data: Path) -> None:
    passwords = tmp_path / "passwords"
    write_password(passwords, "ann", b"one")
    with ServerProcess(data, tmp_path / "log", {"access.password_file": str(passwords)}) as running:
        write_password(passwords, "ann", b"two")
        nothing_else = {"needs_restart": [], "settings_problem": "", "listeners": [], "failed": []}
        assert objects(data, "reload") == [{"read": ["users and rights"], "changed": ["users"], **nothing_else}]
        assert run(data, "reload").text == "read again: users and rights\nchanged: nothing\n"
        with Wire(("127.0.0.1", running.port)) as ann:
            assert ann.connect("c", user_name="ann", password=b"two").return_code == 0
        passwords.write_text("nonsense\n")
        assert "not reloaded, the old settings stay in use:" in sentence(run(data, "reload"))
        with Wire(("127.0.0.1", running.port)) as ann:
            assert ann.connect("c", user_name="ann", password=b"two").return_code == 0


def test_reload_says_which_settings_need_a_restart(tmp_path: Path, data: Path) -> None:
    config = tmp_path / "ember.toml"
    config.write_text("")
    with ServerProcess(data, tmp_path / "log", config=config):
        config.write_text("[limits]\ninflight_max = 7\n")
        assert run(data, "reload").lines[1:] == [
            "changed: nothing",
            "needs a restart: limits.inflight_max is 2000, the settings say 7",
        ]
        config.write_text("[limits]\ninflight_max = many\n")
        done = run(data, "reload")
        assert (done.code, done.lines[-1].startswith("the settings were not compared: ")) == (0, True)


def test_top_without_a_terminal_ends_after_one_view_with_rates(broker: Broker, data: Path) -> None:
    done = run(data, "top", "--every", "0.2")
    assert done.code == 0 and done.text.count("EmberMQ") == 1
    assert "messages in 0" in done.text


def test_who_has_no_session_is_all_that_is_said_if_nothing_was_ended(broker: Broker, data: Path) -> None:
    assert run(data, "sessions", "--end", "nobody") == (1, b"", "ember: nobody has no session\n")
