"""A whole server whose disk is full or read-only: what must last waits or is refused, the rest goes on, it recovers.

Without its data directory it refuses, and does not recover by itself.
"""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from support.server_process import ServerProcess, client, owed, persistent, retained
from support.wire import PUBACK, Message, Wire, publish

STATE_TOPIC = "$SYS/broker/store/state"
SETTINGS = {"server.sys_interval_s": "1"}
MEANWHILE = b"meanwhile" * 40_000  # more than the zeros that the log has ahead


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    served = ServerProcess(tmp_path / "data", tmp_path / "server.log", SETTINGS)
    yield served
    served.kill()


# -- the disk is full, or the directory cannot be written to -------------------------------------------------------


class Disk(Protocol):
    """A place for a data directory, and a way to make it fail for a while."""

    def directory(self) -> Path: ...
    def failing(self, server: ServerProcess) -> AbstractContextManager[None]: ...


def mount(*arguments: str | Path) -> None:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


class SmallDisk:
    """A file system of a few megabytes, filled up by somebody else."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def directory(self) -> Path:
        return self._path / "data"

    @contextmanager
    def failing(self, server: ServerProcess) -> Iterator[None]:
        filler = self._path / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (65_536, 512, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue
        yield
        filler.unlink()


class LimitedFiles:
    """No file may grow any more: needs no rights, and every write fails as on a full disk."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def directory(self) -> Path:
        return self._path / "data"

    @contextmanager
    def failing(self, server: ServerProcess) -> Iterator[None]:
        before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        yield
        if server.process is not None:  # otherwise the limit went with it
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)


@pytest.fixture(params=["small-disk", "limited-files"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "limited-files":
        yield LimitedFiles(tmp_path)
        return
    place = tmp_path / "small"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=16m,mode=700", "none", place)
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def await_state(watch: Wire, wanted: bool) -> str:
    """What `$SYS` says of the store, once it is or is not "ok"."""
    while ((state := watch.receive_message().payload.decode()) == "ok") is not wanted:
        pass
    return state


def is_held(publisher: Wire, watch: Wire) -> bool:
    """Whether the store's state changes before an acknowledgement comes."""
    while not publisher.readable_within(0.05):
        if watch.readable_within(0.05):
            return True
    return False


def test_a_full_disk_holds_what_must_last_lets_the_rest_go_on_and_recovers(disk: Disk, tmp_path: Path) -> None:
    with ServerProcess(disk.directory(), tmp_path / "server.log", SETTINGS) as server:
        persistent(server, "away", "t/#", 1)
        publisher, bystander = client(server, "publisher"), client(server, "bystander")
        watch, reader = client(server, "watch"), client(server, "reader")
        watch.subscribe(STATE_TOPIC)
        reader.subscribe(("free", 1))
        assert await_state(watch, True) == "ok"
        publisher.publish("t/1", b"before", qos=1, retain=True)

        with disk.failing(server):
            publisher.send(publish("t/1", MEANWHILE, qos=1, retain=True, packet_id=500))
            assert "no space" in (said := await_state(watch, False).lower()) or "too large" in said
            # Held: no acknowledgement, and nothing that would overtake it.
            assert not publisher.readable_within(0.2)
            # Refused: the sender keeps what was not taken.
            with client(server, "late") as late:
                late.send(publish("t/2", b"refused", qos=1, retain=True, packet_id=1))
                late.assert_closed()
            with server.wire() as newcomer:
                assert newcomer.connect("newcomer", clean=False).return_code == 3
            # QoS 0 goes on.
            for number in range(50):
                bystander.publish("free", b"%d" % number, qos=0)
            assert [reader.receive_message() for _ in range(50)] == [
                Message("free", b"%d" % number) for number in range(50)
            ]
            assert retained(server, "$SYS/broker/store/refusals") != {}

        # It recovers by itself, and keeps its promise.
        publisher.await_reply(PUBACK, 500)
        assert await_state(watch, True) == "ok"
        publisher.publish("t/1", b"after", qos=1, retain=True)
        bystander.publish("t/3", b"2", qos=2)
        for _ in range(2):
            assert retained(server, "t/#") == {"t/1": b"after"}
            assert owed(server, "away") == [b"before", MEANWHILE, b"after", b"2"]
            server.restart()
        log = server.log()
        assert "durable again" in log
        # The other disk has no room for the log of the test either.
        assert isinstance(disk, LimitedFiles) or "nothing can be made durable: No space left on device" in log
        assert "Traceback" not in log


def test_a_server_killed_while_the_disk_is_full_has_what_it_acknowledged(disk: Disk, tmp_path: Path) -> None:
    with ServerProcess(disk.directory(), tmp_path / "server.log", SETTINGS) as server:
        persistent(server, "away", "t/#", 1)
        publisher, watch = client(server, "publisher"), client(server, "watch")
        watch.subscribe(STATE_TOPIC)
        for number in range(20):
            publisher.publish("t/1", b"%d" % number, qos=1, retain=True)
        with disk.failing(server):
            publisher.send(publish("t/1", MEANWHILE, qos=1, retain=True, packet_id=500))
            await_state(watch, False)
            server.kill()
        server.start()
        assert retained(server)["t/1"] in (b"19", MEANWHILE)
        assert owed(server, "away")[:20] == [b"%d" % number for number in range(20)]


def test_a_server_stops_in_order_while_the_disk_is_full(disk: Disk, tmp_path: Path) -> None:
    with ServerProcess(disk.directory(), tmp_path / "server.log", SETTINGS) as server:
        publisher, watch = client(server, "publisher"), client(server, "watch")
        watch.subscribe(STATE_TOPIC)
        publisher.publish("t/1", b"before", qos=1, retain=True)
        with disk.failing(server):
            publisher.send(publish("t/1", MEANWHILE, qos=1, retain=True, packet_id=500))
            await_state(watch, False)
            exit_code = server.stop()
        assert "Traceback" not in server.log()
        assert exit_code == 0
        server.start()
        assert retained(server)["t/1"] in (b"before", MEANWHILE)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """No file can be made in a directory or below it; those that are open can still be written to."""
    if os.geteuid() == 0:
        mount("--bind", directory, directory)
        try:
            mount("-o", "remount,bind,ro", directory)
            yield
        finally:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
    else:
        places = [directory, *(place for place in directory.rglob("*") if place.is_dir())]
        for place in places:
            place.chmod(0o500)
        try:
            yield
        finally:
            for place in places:
                place.chmod(0o700)


def test_a_read_only_directory_is_refused_at_start(server: ServerProcess, tmp_path: Path) -> None:
    server.start()
    with client(server, "publisher") as publisher:
        publisher.publish("t", b"kept", qos=1, retain=True)
    server.kill()
    with read_only(tmp_path / "data"):
        assert str(tmp_path / "data") in server.refused()
    server.start()
    assert retained(server) == {"t": b"kept"}


@pytest.mark.parametrize(("segment_mib", "count"), [(1, 30), (128, 240)], ids=["log", "state"])
def test_a_directory_made_read_only_under_a_running_server_stops_and_recovers(
    tmp_path: Path, segment_mib: int, count: int
) -> None:
    """The open files can be written to until a new one is needed, by the log or by the state."""
    settings = SETTINGS | {"store.segment_bytes": str(segment_mib * 1024 * 1024)}
    random = Random(311)
    contents = {f"t/{number}": random.randbytes(100_000) for number in range(count)}
    messages = list(contents.items())
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", settings) as server:
        publisher, watch = client(server, "publisher"), client(server, "watch")
        watch.subscribe(STATE_TOPIC)
        assert await_state(watch, True) == "ok"
        with read_only(tmp_path / "data"):
            acknowledged = 0
            for topic_name, payload in messages:
                publisher.send(publish(topic_name, payload, qos=1, retain=True, packet_id=1))
                if is_held(publisher, watch):
                    break
                publisher.expect(PUBACK, 1)
                acknowledged += 1
            await_state(watch, False)
        assert 0 < acknowledged < count
        assert await_state(watch, True) == "ok"
        with client(server, "publisher") as publisher:
            for topic_name, payload in messages[acknowledged:]:
                publisher.publish(topic_name, payload, qos=1, retain=True)
        server.restart()
        with client(server, "onlooker") as looking:
            looking.subscribe(("t/#", 0))
            found = [looking.receive_message() for _ in messages]
            assert {message.topic_name: message.payload for message in found} == contents


# -- the data directory is gone, or another one ------------------------------------------------------------------------


def replaced_by_a_copy(data: Path) -> None:
    data.rename(data.with_name("aside"))
    shutil.copytree(data.with_name("aside"), data, ignore=shutil.ignore_patterns("*.sock"))


LOSSES: dict[str, Callable[[Path], object]] = {
    "removed": shutil.rmtree,
    "renamed": lambda data: data.rename(data.with_name("aside")),
    "another": replaced_by_a_copy,
    "log-renamed": lambda data: (data / "log").rename(data / "aside"),
    "state-removed": lambda data: shutil.rmtree(data / "state"),
    "lock-removed": lambda data: (data / "LOCK").unlink(),
    "log-lock-removed": lambda data: (data / "log" / "lock").unlink(),
    "segment-removed": lambda data: max((data / "log").glob("*.log")).unlink(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_server_without_its_data_directory_acknowledges_nothing_more(
    server: ServerProcess, loss: str, tmp_path: Path
) -> None:
    server.start()
    publisher, watch = client(server, "publisher"), client(server, "watch")
    watch.subscribe(STATE_TOPIC)
    assert await_state(watch, True) == "ok"
    publisher.publish("t", b"before", qos=1)
    names = sorted(path.name for path in (tmp_path / "data" / "log").iterdir())
    LOSSES[loss](tmp_path / "data")
    # The open segment is looked at with each message, the rest of the directory once a second.
    acknowledged = 0
    publisher.send(publish("t", b"after", qos=1, packet_id=100))
    while not is_held(publisher, watch):
        publisher.expect(PUBACK, 100 + acknowledged)
        acknowledged += 1
        publisher.send(publish("t", b"after", qos=1, packet_id=100 + acknowledged))
    assert acknowledged == 0 or loss in ("state-removed", "lock-removed", "log-lock-removed")
    assert "was removed, renamed or replaced while the server ran" in await_state(watch, False)
    assert not publisher.readable_within(0.1)
    if loss == "renamed":  # no server can tell what was done to it meanwhile
        (tmp_path / "aside").rename(tmp_path / "data")
    with client(server, "late") as late:
        late.send(publish("t", b"refused", qos=1, packet_id=1))
        late.assert_closed()
    if loss == "another":
        assert sorted(path.name for path in (tmp_path / "data" / "log").iterdir()) == names
    assert server.stop() == 0
    assert "Traceback" not in server.log()
