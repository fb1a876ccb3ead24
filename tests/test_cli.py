"""The command line, as a person runs it: real processes, their exit codes and what they print."""

import io
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embermq import __version__
from embermq.access.passwords import write_password
from embermq.certificates import Authority
from embermq.cli import main
from embermq.compiled import PURE_VARIABLE, form
from embermq.settings import sample
from support.wire import Connack, Wire

EMBER = (sys.executable, "-m", "embermq")
TIMEOUT_S = 60


def environment() -> dict[str, str]:
    """That of this process without settings; it still says which form of the modules runs."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith("EMBERMQ_") or name == PURE_VARIABLE
    }


def ember(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*EMBER, *map(str, arguments)],
        input=stdin,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def sentence(printed: str, errors: str) -> str:
    """The one sentence of a command that could not do what it was asked."""
    assert printed == ""
    assert errors.startswith("ember: ") and errors.count("\n") == 1, errors
    return errors.strip()


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command in this process, which is quicker, and returns its sentence; it must exit with 2."""
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)

    def run(*arguments: str | Path, stdin: str = "") -> str:
        monkeypatch.setattr(sys, "argv", ["ember", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        return sentence(*capsys.readouterr())

    return run


class Served:
    """A running `ember serve` and what it printed until it was ready."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(line.strip())
            if line == "ready\n":
                return
        assert process.stderr is not None
        raise AssertionError(f"it ended: {process.stderr.read()}")

    def port(self, scheme: str) -> int:
        return next(int(found[1]) for line in self.lines if (found := re.search(rf" {scheme}://.*?:(\d+)", line)))

    def wire(self) -> Wire:
        return Wire(("127.0.0.1", self.port("mqtt")))

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_S)

    def logged(self, text: str) -> str:
        """The next line on standard error that contains a text."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if text in line)


@contextmanager
def serving(*arguments: str | Path, directory: Path | None = None) -> Iterator[Served]:
    process = subprocess.Popen(
        [*EMBER, "serve", "--port", "0", *map(str, arguments)],
        cwd=directory,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Served(process)
    finally:
        process.kill()
        process.communicate()


def test_version_and_help() -> None:
    assert ember("version").stdout == ember("--version").stdout == f"ember {__version__} ({form()})\n"
    help_text = ember("--help").stdout
    assert all(command in help_text for command in ("serve", "passwd", "config", "version"))


def test_help_shows_the_defaults_that_settings_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = ember("serve", "--help").stdout.splitlines()
    for option, default in {"--host": "127.0.0.1", "--port": "1883", "--data": "ember-data"}.items():
        text = " ".join(" ".join(lines[lines.index(next(line for line in lines if f" {option} " in line)) :]).split())
        assert f"[default: ({default})]" in text.partition(" --")[0]


def test_the_sample_is_printed_and_passes_the_check(tmp_path: Path) -> None:
    printed = ember("config", "sample").stdout
    assert printed == sample()
    path = tmp_path / "ember.toml"
    path.write_text(printed)
    checked = ember("config", "check", path)
    assert (checked.returncode, checked.stdout) == (0, f"{path}: all settings are valid\n")


def test_the_check_reads_the_files_that_the_settings_name(tmp_path: Path, refusal: Callable[..., str]) -> None:
    path = tmp_path / "ember.toml"
    path.write_text(f"[access]\nacl_file = '{tmp_path}/acl'\n")
    assert "access.acl_file: cannot read" in refusal("config", "check", path)
    (tmp_path / "acl").write_text("all\nreed #")
    assert "acl, line 2: expected 'read'" in refusal("config", "check", path)
    bridge = "[[bridges]]\nname = 'a'\nurl = 'mqtts://other'\nout = [{ filter = '#' }]\n"
    path.write_text(f"{bridge}user = 'ann'\npassword_file = '{tmp_path}/none'\n")
    assert f"bridge a: cannot read password_file {tmp_path}/none" in refusal("config", "check", path)
    path.write_text(f"{bridge}ca = '{tmp_path}/none.crt'\n")
    assert f"bridge a: ca {tmp_path}/none.crt: there is no such file" in refusal("config", "check", path)


def test_the_check_refuses_narrowing_to_no_rights(tmp_path: Path, refusal: Callable[..., str]) -> None:
    path = tmp_path / "ember.toml"
    path.write_text("[access]\nwildcards = 'narrow'\n")
    assert 'access.wildcards = "narrow" does nothing: set access.acl_file' in refusal("config", "check", path)
    (tmp_path / "acl").write_text("all\nread #\n")
    path.write_text(
        f"[access]\nwildcards = 'narrow'\n[[listeners]]\nkind = 'tcp'\nport = 0\nacl_file = '{tmp_path}/acl'\n"
    )
    assert ember("config", "check", path).returncode == 0


def test_serve_says_which_settings_file_it_has_found(tmp_path: Path) -> None:
    settings = tmp_path / "ember.toml"
    settings.write_text("[store]\nmemory = true\n")
    with serving(directory=tmp_path) as server:
        assert server.lines[1] == "settings: ember.toml"
        assert "store: memory, nothing outlives the server" in server.lines
    settings.unlink()
    with serving("--memory", directory=tmp_path) as server:
        assert server.lines[1] == "settings: defaults, since no ember.toml was found"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_what_it_does_and_stops_cleanly(number: int) -> None:
    with serving("--memory") as server:
        assert server.lines == [
            f"ember {__version__} ({form()})",
            "settings: defaults, since no ember.toml was found",
            f"listening on mqtt://127.0.0.1:{server.port('mqtt')}",
            "store: memory, nothing outlives the server",
            "access: anonymous clients; everything allowed",
            "ready",
        ]
        with server.wire() as wire:
            assert wire.connect("c1") == Connack(0, 0)
            assert server.end(number) == 0
            wire.assert_closed()
        printed, logged = server.process.communicate()
        assert printed == "stopped\n"
        assert "WARNING" not in logged and "ERROR" not in logged


def test_serve_listens_on_every_transport(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("server")
    unix_path = tmp_path / "ember.sock"
    tls = ("--tls-port", "0", "--cert", pair.certificate, "--key", pair.key)
    with serving("--memory", "--ws-port", "0", "--unix", unix_path, *tls) as server:
        assert len({server.port(scheme) for scheme in ("mqtt", "mqtts", "ws")}) == 3
        assert f"listening on ws://127.0.0.1:{server.port('ws')}" in server.lines
        assert f"listening on unix socket {unix_path}" in server.lines
        assert unix_path.stat().st_mode & 0o777 == 0o660
        assert server.end(signal.SIGTERM) == 0
        assert not unix_path.exists()


def test_serve_keeps_its_data_in_a_directory_and_to_itself(tmp_path: Path, refusal: Callable[..., str]) -> None:
    data = tmp_path / "data"
    with serving("--data", data) as server:
        assert f"store: {data}, durability sync" in server.lines
        assert data.stat().st_mode & 0o777 == 0o700
        assert f"{data} is in use by another server" in refusal("serve", "--port", "0", "--data", data)
        with server.wire() as wire:
            assert wire.connect("c1") == Connack(0, 0)
            wire.publish("a", b"kept", qos=1, retain=True)
        assert server.end(signal.SIGTERM) == 0
    with serving("--data", data) as server, server.wire() as wire:
        assert wire.connect("c1") == Connack(0, 0)
        wire.subscribe(("a", 0))
        assert wire.receive_message().payload == b"kept"


def test_flags_and_environment_and_file_come_together(tmp_path: Path) -> None:
    path = tmp_path / "ember.toml"
    path.write_text("[listeners]\nport = 1\nws_port = 0\n[store]\nmemory = true\n")
    with serving("--config", path) as server:
        assert server.port("mqtt") > 1 and server.port("ws") > 1


def test_a_busy_port_is_one_sentence(refusal: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        reason = "Address already in use; stop what listens there, or choose another address"
        expected = f"ember: cannot listen on 127.0.0.1:{port}: {reason}"
        done = ember("serve", "--memory", "--port", port)
        assert (done.returncode, sentence(done.stdout, done.stderr)) == (2, expected)
        assert refusal("serve", "--memory", "--port", "0", "--ws-port", port) == expected


def test_a_bad_settings_file_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "ember.toml"
    path.write_text("[listeners]\nport = 'mqtt'\n")
    done = ember("serve", "--config", path)
    expected = f"ember: {path}: listeners.port: expected a valid integer"
    assert done.returncode == 2 and sentence(done.stdout, done.stderr).startswith(expected)


def test_what_cannot_be_served_is_one_sentence(tmp_path: Path, refusal: Callable[..., str]) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("not PEM")
    one, other = Authority(tmp_path).sign("one"), Authority(tmp_path).sign("other")
    tls = ("serve", "--memory", "--port", "0", "--tls-port", "0")
    assert "cannot read" in refusal("serve", "--config", tmp_path / "none.toml")
    assert "need listeners.certificate" in refusal(*tls)
    assert "cannot read" in refusal(*tls, "--cert", tmp_path / "none.crt", "--key", one.key)
    assert "are not a PEM certificate" in refusal(*tls, "--cert", garbage, "--key", garbage)
    assert "does not belong to" in refusal(*tls, "--cert", one.certificate, "--key", other.key)
    assert "--data and --memory" in refusal("serve", "--memory", "--data", tmp_path / "data")
    assert "reachable from other machines" in refusal("serve", "--memory", "--host", "0.0.0.0")
    assert "cannot listen on host.invalid:1883" in refusal(
        "serve", "--memory", "--host", "host.invalid", "--allow-anonymous"
    )
    assert "cannot listen on" in refusal("serve", "--memory", "--port", "0", "--unix", tmp_path / "no" / "socket")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--data", ""),
        ("up", "--data", ""),
        ("up", "--lake", ""),
        ("pipeline", "run", "--data", ""),
        ("pipeline", "run", "--lake", ""),
        ("pipeline", "query", "select 1", "--data", ""),
        ("retained", "ls", "--data", ""),
        ("store", "stat", "--data", ""),
        ("log", "tail", "--data", ""),
    ],
    ids=" ".join,
)
def test_an_empty_directory_name_is_not_the_current_directory(
    arguments: tuple[str, ...], refusal: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = "a directory or a URL" if "--lake" in arguments else "a directory"
    assert refusal(*arguments) == f"ember: {arguments[-2]}: expected {expected}, not ''"
    assert list(tmp_path.iterdir()) == []


def test_a_hangup_puts_new_users_and_rights_in_force(tmp_path: Path) -> None:
    passwords, acl, config = tmp_path / "passwords", tmp_path / "acl", tmp_path / "ember.toml"
    write_password(passwords, "alice", b"one")
    acl.write_text("user alice\nread a/#\n")
    config.write_text(f"[store]\nmemory = true\n[access]\npassword_file = '{passwords}'\nacl_file = '{acl}'\n")
    with serving("--config", config) as server:
        assert server.lines[-2] == f"access: users of {passwords}; rights of {acl}"
        with server.wire() as refused, server.wire() as anonymous, server.wire() as alice:
            assert refused.connect("c0", user_name="alice", password=b"two") == Connack(0, 4)
            assert anonymous.connect("c1") == Connack(0, 5)
            assert alice.connect("c2", user_name="alice", password=b"one") == Connack(0, 0)
            assert alice.subscribe(("a/b", 0), ("b", 0), ("#", 0)) == [0, 0x80, 0x80]

            acl.write_text("nonsense\n")
            server.process.send_signal(signal.SIGHUP)
            assert "acl, line 1" in server.logged("not reloaded")
            assert alice.subscribe(("a/b", 0)) == [0]

            acl.write_text("user alice\nread b\n")
            server.process.send_signal(signal.SIGHUP)
            assert server.logged("read again")
            assert alice.subscribe(("a/b", 0), ("b", 0)) == [0x80, 0]

            write_password(passwords, "alice", b"two")
            server.process.send_signal(signal.SIGHUP)
            assert server.logged("read again")
            alice.assert_closed()
        with server.wire() as alice:
            assert alice.connect("c2", user_name="alice", password=b"two") == Connack(0, 0)
        assert server.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("arguments", [("--version",), ("token", "--help")])
def test_only_the_module_of_the_called_command_is_imported(arguments: tuple[str, ...]) -> None:
    heavy = ("aiohttp", "argon2", "asyncio", "numpy", "pyarrow", "rich", "rocksdict", "embermq.settings")
    code = (
        "import sys; from embermq.cli import main\n"
        "try: main()\n"
        f"finally: print([name for name in ({heavy!r} + ('embermq.commands.serve',)) if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment(), capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
