"""Archives for tests: a small log that is uploaded, and servers of S3 and of Google's store on this machine."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from embermq.archive.address import parse_address
from embermq.archive.archive import Archive
from embermq.archive.manifest import ArchivedSegment
from embermq.archive.objects import Objects
from embermq.archive.uploader import Uploader, UploadSettings
from embermq.archive.writer import ArchiveWriter
from embermq.history.stretches import archived_history
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.interface import Store
from embermq.store.log.identity import LogIdentity, log_identity
from embermq.store.log.reader import LogReader
from support.log_samples import fill, open_log
from support.store_contract import Engine

BUCKET = "ember"


def filled_log(directory: Path, groups: int = 12, records: int = 20) -> None:
    """A log of some closed segments, of three groups each, and an open one."""
    log = open_log(directory)
    for number in range(groups):
        if number % 3 == 0:
            log.roll()
        fill(log, [records])
    log.close()
    log_identity(directory)


def writer_of(url: str, directory: Path, identity: LogIdentity | None = None) -> ArchiveWriter:
    return ArchiveWriter(Objects(parse_address(url)), identity or log_identity(directory))


def upload_closed(url: str, directory: Path) -> list[ArchivedSegment]:
    """Upload the closed segments of a log."""
    writer = writer_of(url, directory)
    writer.claim()
    reader = LogReader(directory)
    return [
        writer.upload_segment(info, reader.entries(info.first_offset, info.blocks)) for info in reader.segments()[:-1]
    ]


@contextmanager
def s3_server() -> Iterator[str]:
    """An S3 server with an empty bucket; gives the query that an address needs to reach it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it says each request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()


@contextmanager
def gs_server() -> Iterator[str]:
    """A server of Google's store with an empty bucket; gives the query that an address needs to reach it."""
    from gcp_storage_emulator.handlers.buckets import create_bucket  # type: ignore[import-untyped] # it has no types
    from gcp_storage_emulator.server import RequestHandler  # type: ignore[import-untyped] # as above
    from gcp_storage_emulator.storage import Storage  # type: ignore[import-untyped] # as above

    storage = Storage(use_memory_fs=True)
    create_bucket(BUCKET, storage)
    # Its own server has one thread, which a client that reads slowly would stop.
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(RequestHandler, storage)) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http&anonymous=true"
        finally:
            server.shutdown()


KEPT = JournalSettings(durability="os", segment_bytes=16 * 1024)
"""Nothing is trimmed."""


def engine_with(data: Path, place: str, settings: JournalSettings = KEPT, **options: object) -> Engine:
    """A store whose closed segments are archived."""

    def opener(call_soon: Callable[[Callable[[], None]], None], budgets: tuple[RetainedBudget, ...]) -> Store:
        upload = UploadSettings(place, check_s=0.05, retry_first_s=0.05, stop_s=90, **options)  # type: ignore[arg-type]
        trimmed = partial(archived_history, place, data / "log")
        return DiskStore(data, call_soon, settings, archiver=Uploader(upload), trimmed=trimmed)

    return Engine(opener)


def publish(engine: Engine, rounds: int, step_us: int = 1_000, payload: bytes = b"") -> None:
    """In each round a retained message of some 500 bytes on each of four topics, as one group."""
    for number in range(rounds):
        engine.turn(step_us)
        for topic in range(4):
            engine.publish(f"much/{topic}", (payload or b"%d" % number) + bytes(500))
        engine.commit()


def publish_slowly(engine: Engine, rounds: int, step_us: int) -> None:
    """As `publish`, waiting for the uploads now and then, so that the log can be trimmed."""
    for done in range(0, rounds, 10):
        publish(engine, min(10, rounds - done), step_us)
        wait_until(lambda: engine.store.counts()["archive/pending-bytes"] == 0)


def wait_until(is_so: Callable[[], bool], within_s: float = 60) -> None:
    pause = Event()
    for _ in range(int(within_s / 0.01)):
        if is_so():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen in time")


def read_all(archive: Archive, into: Path) -> list[tuple[int, bytes]]:
    """Every record of an archive: its offset and payload."""
    into.mkdir()
    for segment in archive.segments():
        archive.fetch(segment, into)
    batches = LogReader(into).batches(archive.bounds()[0])
    return [
        (offset, payload)
        for batch in batches
        for offset, payload in zip(batch["offset"].to_pylist(), batch["payload"].to_pylist(), strict=True)
    ]


def uploader(place: str) -> Uploader:
    """One that looks at the log all the time."""
    return Uploader(UploadSettings(place, check_s=0.02, retry_first_s=0.02))
