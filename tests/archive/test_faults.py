"""What an archive may do to its server: be slow, be full, refuse; and a server that is killed while it uploads."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from socket import create_connection, create_server, socket

import pytest

from embermq.archive.archive import missing, open_archive
from embermq.store.log.reader import LogReader
from support.archives import BUCKET, KEPT, engine_with, publish, read_all, wait_until
from support.log_samples import TESTS
from support.server_process import ServerProcess
from support.wire import Wire

UPLOADING = """
import sys
from pathlib import Path
from support.archives import engine_with, publish
engine = engine_with(Path(sys.argv[1]), sys.argv[2])
print("ready", flush=True)
while True:
    publish(engine, 5)
    print(engine.store.next_offset(), flush=True)
"""


def offsets(data: Path) -> list[int]:
    return [one for batch in LogReader(data / "log").batches(1) for one in batch["offset"].to_pylist()]


def test_a_server_that_is_killed_while_it_uploads_loses_nothing(s3_query: str, tmp_path: Path) -> None:
    """Again and again, at any moment: what the archive shows is whole, and at last it has all."""
    data, random, place = tmp_path / "data", Random(5), f"s3://{BUCKET}/killed?{s3_query}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(TESTS)])}
    for _ in range(3):
        command = [sys.executable, "-c", UPLOADING, str(data), place]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for _ in range(random.randrange(2, 12)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        try:
            archive = open_archive(place)
        except Exception as error:
            assert "is not an archive" in str(error)  # killed before the first upload
            continue
        for segment in archive.segments():
            archive.check(segment)
        assert missing(archive.segments()) == []
    engine = engine_with(data, place)
    publish(engine, 5)
    engine.store.close()
    found = [offset for offset, _ in read_all(open_archive(place), tmp_path / "fetched")]
    assert found == offsets(data) == list(range(1, len(found) + 1))


def test_a_disk_that_is_full_is_said_and_leaves_no_half_object(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, whole = tmp_path / "archive", os.fdatasync
    is_full = threading.Event()
    is_full.set()

    def sync(descriptor: int) -> None:
        if is_full.is_set() and str(place) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        whole(descriptor)

    monkeypatch.setattr("embermq.archive.directory_place.os.fsync", sync)
    engine = engine_with(tmp_path / "data", str(place))
    publish(engine, 20)
    wait_until(lambda: engine.store.counts()["archive/failures"] > 1)
    assert caplog.text.count("No space left on device") == 1
    assert [path for path in place.rglob("*") if path.is_file()] == []
    is_full.clear()
    wait_until(lambda: engine.store.counts()["archive/pending-bytes"] == 0)
    engine.store.close()
    assert len(read_all(open_archive(place), tmp_path / "fetched")) == 80


@contextmanager
def slow_proxy(port: int, bytes_a_second: int) -> Iterator[int]:
    """A port that passes bytes on to another one, few at a time; gives its number."""
    listener = create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def copy(source: socket, target: socket) -> None:
        try:
            while not stopping.is_set() and (data := source.recv(bytes_a_second // 20)):
                target.sendall(data)
                stopping.wait(len(data) / bytes_a_second)
        except OSError:
            pass
        finally:
            source.close()
            target.close()

    def accept() -> None:
        while not stopping.is_set():
            try:
                client, _ = listener.accept()
                server = create_connection(("127.0.0.1", port))
            except OSError:
                return
            for pair in ((client, server), (server, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        stopping.set()
        listener.close()


def test_a_slow_archive_delays_no_commit(s3_query: str, tmp_path: Path) -> None:
    port = int(s3_query.partition("127.0.0.1:")[2].partition("&")[0])
    with slow_proxy(port, 60_000) as slow:
        place = f"s3://{BUCKET}/slow?{s3_query.replace(f':{port}', f':{slow}')}"
        engine = engine_with(tmp_path / "data", place, KEPT)
        publish(engine, 30)  # 60 kB: a second and more for this archive
        assert engine.store.counts()["archive/uploads"] == 0
        assert len(offsets(tmp_path / "data")) == 120
        wait_until(lambda: engine.store.counts()["archive/pending-bytes"] > 20_000)
        engine.store.close()
        assert open_archive(place).bounds() == (1, 121)


@pytest.mark.long
def test_a_server_stops_although_its_archive_does_not_answer(s3_query: str, tmp_path: Path) -> None:
    """Within the 10 seconds that it gives the last upload; pyarrow alone would wait for two minutes."""
    port = int(s3_query.partition("127.0.0.1:")[2].partition("&")[0])
    with slow_proxy(port, 20) as hanging:
        place = f"s3://{BUCKET}/hanging?{s3_query.replace(f':{port}', f':{hanging}')}"
        with ServerProcess(tmp_path / "data", tmp_path / "log") as first:  # a new log would wait for the archive
            assert first.stop() == 0
        with ServerProcess(tmp_path / "data", tmp_path / "log", {"store.archive": place}) as server:
            with Wire(("127.0.0.1", server.port)) as client:
                client.connect("c")
                client.publish("a", b"x", qos=1)
            assert server.stop() == 0
            assert "a request to the archive does not end" in server.log()


def test_wrong_credentials_are_one_sentence_without_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers 403 to everything, as S3 does then."""
    denied = (
        b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    )
    body = b"<Error><Code>InvalidAccessKeyId</Code><Message>The key you gave does not exist.</Message></Error>"
    listener = create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(65_536)
                client.sendall(denied % (len(body), body))

    threading.Thread(target=answer, daemon=True).start()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
    port = listener.getsockname()[1]
    engine = engine_with(tmp_path / "data", f"s3://b/x?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1")
    publish(engine, 20)
    wait_until(lambda: engine.store.counts()["archive/failures"] > 0)
    engine.store.close()
    listener.close()
    (said,) = [record.getMessage() for record in caplog.records if "tried again" in record.getMessage()]
    assert "the archive s3://b/x cannot list log" in said and "\n" not in said
    assert "wrong-secret" not in caplog.text and "wrong-key" not in caplog.text
    assert len(offsets(tmp_path / "data")) == 80


def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    engine = engine_with(tmp_path / "data", place)
    publish(engine, 20)
    engine.store.close()
    engine = engine_with(tmp_path / "data", place)
    engine.now_us = 1  # long before what is archived
    publish(engine, 20)
    engine.store.close()
    segments = open_archive(place).segments()
    assert missing(segments) == []
    times = [instant for one in segments for instant in (one.first_timestamp_us, one.last_timestamp_us)]
    assert times == sorted(times)
    assert [offset for offset, _ in read_all(open_archive(place), tmp_path / "fetched")] == list(range(1, 161))
