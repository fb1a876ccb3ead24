"""`ember retained` where something is wrong: one sentence on standard error, and exit code 2."""

import errno
import os
import socket
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from embermq.commands.server_access.running import connect
from embermq.errors import ConfigError
from embermq.store.engines.directory import DataDirectory
from embermq.transport.sockets.addresses import unix_address
from support.ember_command import DataPlace, ember, sentence, server
from support.server_process import ServerProcess

BINARY = bytes(range(256))


def _socket_path(data: Path) -> AbstractContextManager[str]:
    return unix_address(data / "control.sock")


def test_a_pipe_that_is_closed_early_is_no_error(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with server(data):
        lines = b"".join(b'{"topic": "a/%d", "payload": "%s"}\n' % (n, b"x" * 200) for n in range(3_000))
        assert ember("retained", "import", "-", "--data", data, stdin=lines).code == 0
        command = [sys.executable, "-m", "embermq", "retained", "ls", "--json", "--data", str(data)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            assert process.stdout.readline().startswith(b'{"topic": "a/0"')
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(60) == 0


# -- what can be set right ---------------------------------------------------------------------------------------------


def test_bad_input_is_one_sentence(place: DataPlace, tmp_path: Path) -> None:
    for arguments, expected in (
        (("ls", "a/#/b"), "a/#/b: expected a topic filter: '#' is not the last character of the filter"),
        (("ls", "a+"), "'+' does not occupy a whole level"),
        (("ls", ""), "empty topic filter"),
        (("ls", "\udcff"), "expected a topic filter: not UTF-8"),
        (("ls", "x" * 70_000), "longer than 65535 bytes"),
        (("ls", "--as-of", "yesterday"), "--as-of yesterday: expected an instant such as 2026-01-31T14:03:07Z"),
        (("ls", "--as-of", "2999-01-01"), "not in the future"),
        (("ls", "--as-of", "99999999999999"), "not in the future"),
        (("get", "a/+"), "expected a topic name: wildcard in a topic name"),
        (("get", "a", "--raw", "--json"), "--raw and --json: expected one of them"),
        (("set", "a"), "expected PAYLOAD or --stdin"),
        (("set", "a", "1", "--stdin"), "expected PAYLOAD or --stdin"),
        (("set", "a", ""), "expected a payload that is not empty"),
        (("set", "#", "1"), "wildcard in a topic name"),
        (("set", "$SYS/broker/version", "1"), "not retained on $SYS/broker/version: $SYS topics are the server's own"),
        (("set", "/".join("x" * 200), "1"), "at most 128 levels"),
        (("clear", "a/b#"), "expected a topic filter"),
        (("import",), "expected FILE or --from URL"),
        (("import", "x", "--from", "mqtt://x"), "expected FILE or --from URL"),
        (("import", "x", "--filter", "#/"), "expected a topic filter"),
        (("import", "--from", "http://x"), "--from: expected mqtt://host:1883"),
        (("import", "--from", "mqtt://"), "--from: expected mqtt://host:1883"),
        (("import", "--from", "mqtt://x:port"), "--from: expected mqtt://host:1883"),
        (("import", "--from", "mqtt://x/topic"), "--from: expected mqtt://host:1883"),
    ):
        assert expected in sentence(place.retained(*arguments))
    missing = place.retained("import", tmp_path / "none")
    assert (missing.code, missing.errors) == (2, f"ember: cannot read {tmp_path}/none: No such file or directory\n")
    assert place.topics() == {}


def test_a_directory_that_is_none_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    for arguments in (("ls",), ("set", "a", "1"), ("import", "-")):
        assert "is not the data directory of a server" in sentence(ember("retained", *arguments, "--data", missing))
    (tmp_path / "file").write_text("")
    assert "is not the data directory" in sentence(ember("retained", "ls", "--data", tmp_path / "file"))
    assert "is not the data directory" in sentence(ember("retained", "ls", "--data", tmp_path))
    assert not missing.exists()


def test_a_server_in_memory_has_nothing_to_reach(tmp_path: Path) -> None:
    done = ember("retained", "ls", environment={"EMBERMQ_STORE__MEMORY": "true"})
    assert "store.memory is true" in sentence(done)


def test_the_settings_name_the_directory_whether_or_not_a_server_could_start(place: DataPlace, tmp_path: Path) -> None:
    place.set("a", b"1")
    config = tmp_path / "ember.toml"
    config.write_text(f"[listeners]\nhost = '0.0.0.0'\n[store]\ndirectory = '{place.data}'\n")
    assert ember("retained", "get", "a", "--config", config).text == "1\n"
    assert ember("retained", "get", "a", environment={"EMBERMQ_STORE__DIRECTORY": str(place.data)}).text == "1\n"
    config.write_text("[store]\ndirectroy = 'x'\n")
    assert "there is no setting store.directroy" in sentence(ember("retained", "ls", "--config", config))


def test_a_server_without_an_answer_is_one_sentence(tmp_path: Path) -> None:
    data = tmp_path / "data"
    held = DataDirectory(data)
    try:
        expected = f"{data} is in use by another server, process {os.getpid()}, and its control socket does not answer"
        assert expected in sentence(ember("retained", "ls", "--data", data))
        with socket.socket(socket.AF_UNIX) as deaf, _socket_path(data) as path:
            deaf.bind(path)
            assert expected in sentence(ember("retained", "ls", "--data", data))
            deaf.listen()
            silent = connect(data / "control.sock", answer_timeout_s=0.2)
            assert silent is not None
            with silent, pytest.raises(ConfigError, match=r"^the server does not answer on .*\.sock within 0\.2 s$"):
                list(silent.messages("#"))
    finally:
        held.close()


def test_a_server_that_ends_during_an_import(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "log").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener, _socket_path(data) as path:
        listener.bind(path)
        listener.listen()

        answer = b'{"retained":1499,"refused":[{"place":1,"error":"full"}]}'

        def answer_one() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as requests:
                assert requests.readline() == b"POST /api/v1/retained/set HTTP/1.1\r\n"
                headers = dict(line.rstrip().split(b": ") for line in iter(requests.readline, b"\r\n"))
                requests.read(int(headers[b"Content-Length"]))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
                assert requests.readline() == b"POST /api/v1/retained/set HTTP/1.1\r\n"

        dying = threading.Thread(target=answer_one)
        dying.start()
        lines = b"".join(b'{"topic": "a/%d", "payload": "1"}\n' % number for number in range(1_600))
        done = ember("retained", "import", "-", "--data", data, stdin=lines)
        dying.join()
    assert (done.code, done.text) == (2, "imported 1499 messages, 1 were refused\n")
    assert done.errors == f"refused a/1: full\nember: the server on {data}/control.sock ended before it had answered\n"


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    with server(data):
        pass

    write = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if len(data) < 20:  # the number of the process in the lock file
            return write(descriptor, data, at)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)  # of the log's writer, which may be compiled
        done = ember("retained", "set", "a", "1", "--data", data)
        assert sentence(done) == "nothing can be made durable: No space left on device"
    assert ember("retained", "ls", "--data", data).printed == b""
    assert ember("retained", "set", "a", "1", "--data", data).code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
def test_another_user_is_told_that_the_directory_is_not_theirs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, tmp_path / "log"):
        assert ember("retained", "ls", "--data", data).code == 0
        os.seteuid(65534)
        try:
            done = ember("retained", "ls", "--data", data)
        finally:
            os.seteuid(0)
    assert sentence(done) == f"{data} is not accessible for this user"
