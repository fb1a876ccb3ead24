"""The service manager: what a real server tells it on a real socket, and the watchdog."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.commands.service_manager import ServiceManager
from support.server_process import ServerProcess

READY, STOPPING = b"READY=1\nSTATUS=serving clients", b"STOPPING=1\nSTATUS=stopping"


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """The socket of a service manager, and what NOTIFY_SOCKET has for it."""
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(60)
        receiver.bind(name if request.param == "path" else f"\0{name}")
        yield receiver, name if request.param == "path" else f"@{name}"


def test_a_server_says_when_it_is_ready_that_it_runs_and_when_it_stops(
    manager: tuple[socket.socket, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, name = manager
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    with ServerProcess(tmp_path / "data", tmp_path / "log") as running:
        assert receiver.recv(1000) == READY
        for _ in range(3):
            assert receiver.recv(1000) == b"WATCHDOG=1"
        assert running.process is not None
        running.process.send_signal(signal.SIGTERM)
        said = receiver.recv(1000)
        while said == b"WATCHDOG=1":
            said = receiver.recv(1000)
        assert said == STOPPING
        assert running.process.wait(60) == 0


def said(receiver: socket.socket, environment: dict[str, str]) -> list[bytes]:
    """What a manager is told by a server that has run for a moment."""

    async def serve() -> None:
        async with ServiceManager(environment):
            await asyncio.sleep(0)

    asyncio.run(serve())
    receiver.setblocking(False)
    found: list[bytes] = []
    while True:
        try:
            found.append(receiver.recv(1000))
        except BlockingIOError:
            return found


@pytest.mark.parametrize(
    ("environment", "is_fed"),
    [
        ({}, False),
        ({"WATCHDOG_USEC": "1000000"}, True),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}, False),
        ({"WATCHDOG_USEC": "soon"}, False),
    ],
)
def test_the_watchdog_is_fed_where_it_is_asked_for(
    manager: tuple[socket.socket, str], environment: dict[str, str], is_fed: bool
) -> None:
    receiver, name = manager
    told = said(receiver, {"NOTIFY_SOCKET": name, **environment})
    assert told == [READY, *([b"WATCHDOG=1"] if is_fed else []), STOPPING]


def test_without_a_service_manager_nothing_is_told(manager: tuple[socket.socket, str]) -> None:
    assert said(manager[0], {"WATCHDOG_USEC": "1000000"}) == []


def test_a_service_manager_that_is_gone_is_a_line_in_the_log(
    tmp_path: Path, manager: tuple[socket.socket, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert said(manager[0], {"NOTIFY_SOCKET": str(tmp_path / "gone")}) == []
    assert "was not told READY=1" in caplog.text
