"""Archives for tests: a small log that is uploaded, and an S3 server on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embermq.archive.address import parse_address
from embermq.archive.manifest import ArchivedSegment
from embermq.archive.objects import Objects
from embermq.archive.writer import ArchiveWriter
from embermq.store.log.identity import LogIdentity, log_identity
from embermq.store.log.reader import LogReader
from support.log_samples import fill, open_log

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

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()
