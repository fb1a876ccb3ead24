"""An archive in an object store or HDFS, through pyarrow, which the extra `archive` installs.

Owns: the file systems of pyarrow: how they are opened, and what they do not do by themselves.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import Final, final
from urllib.parse import SplitResult, parse_qs, unquote
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from embermq.archive.place import CHUNK_BYTES, UNFINISHED, Place

CONNECT_TIMEOUT_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 30.0
S3_ATTEMPTS: Final = 3
"""Attempts before S3 is given up, and how long each waits for an answer."""
CLIENTS_TIMEOUT_S: Final = 10.0
CLIENTS_ATTEMPTS: Final = 2
"""As above, where clients wait for the answer: those behind them wait as well."""
GS_RETRY_S: Final = 10.0
"""How long a request to Google's store is repeated; by default pyarrow goes on for 15 minutes."""
STREAMS_MAX: Final = 8
"""How many streams of objects in Google's store are kept open: as many as are read by turns."""


@final
class RemotePlace(Place):
    """What is below a path of a file system of pyarrow."""

    def __init__(self, filesystem: fs.FileSystem, root: str) -> None:
        self.filesystem: Final = filesystem
        self.root: Final = root
        self._lock: Final = Lock()
        self._streams: Final[dict[str, tuple[int, pa.NativeFile]]] = {}  # by path, each with its position

    def sizes(self, folder: str) -> dict[str, int]:
        with _as_os_errors():
            found = self.filesystem.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True))
        return {info.base_name: info.size for info in found if info.type == fs.FileType.File}

    def read_range(self, name: str, start: int, end: int) -> bytes:
        with _as_os_errors():
            if self.filesystem.type_name == "gcs":
                return self._read_on(self._path(name), start, end)
            with self.filesystem.open_input_file(self._path(name)) as file:
                data: bytes = file.read_at(end - start, start)
                return data

    def chunks(self, name: str) -> Iterator[bytes]:
        with _as_os_errors(), self.filesystem.open_input_stream(self._path(name)) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def write(self, name: str, chunks: Iterator[bytes]) -> None:
        with _as_os_errors():
            if self.filesystem.type_name == "hdfs":
                self._write_and_move(self._path(name), chunks)
            else:  # an object store shows an object when its upload is complete
                self._stream(self._path(name), chunks)

    def delete(self, name: str) -> None:
        with _as_os_errors():
            self.filesystem.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _read_on(self, path: str, start: int, end: int) -> bytes:
        """A range of an object in Google's store, from a stream of it.

        A file would send its first request while pyarrow holds the interpreter's lock: a slow answer would stop the
        server. A stream does not, but can only be read on; so it stays open for the range that follows.
        """
        with self._lock:
            position, stream = self._streams.pop(path, (end, None))
        if stream is None or position > start:
            position, stream = 0, self.filesystem.open_input_stream(path)
        while position < start and (skipped := stream.read(min(CHUNK_BYTES, start - position))):
            position += len(skipped)
        data: bytes = stream.read(end - start)
        with self._lock:
            self._streams[path] = (position + len(data), stream)
            if len(self._streams) > STREAMS_MAX:
                del self._streams[next(iter(self._streams))]
        return data

    def _stream(self, path: str, chunks: Iterator[bytes]) -> None:
        # pyarrow completes an upload also when the writing of it failed: no object counts without its manifest.
        with self.filesystem.open_output_stream(path) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def _write_and_move(self, path: str, chunks: Iterator[bytes]) -> None:
        unfinished = f"{path}.{uuid4().hex}{UNFINISHED}"
        self.filesystem.create_dir(path.rpartition("/")[0])
        self._stream(unfinished, chunks)
        self.filesystem.move(unfinished, path)


def remote_place(text: str, parts: SplitResult, for_clients: bool) -> RemotePlace:
    """The place that an address means; OSError, ValueError, ImportError or NotImplementedError if it cannot be used."""
    if parts.scheme in ("s3", "gs"):
        filesystem = _s3(parts, for_clients) if parts.scheme == "s3" else _gs(parts)
        return RemotePlace(filesystem, (parts.netloc + unquote(parts.path)).rstrip("/"))
    filesystem, root = fs.FileSystem.from_uri(text)
    return RemotePlace(filesystem, root.rstrip("/"))


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise OSError(str(error)) from None


def _options(parts: SplitResult) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(parts.query).items()}


def _gs(parts: SplitResult) -> fs.GcsFileSystem:
    options = _options(parts)
    is_anonymous = options.pop("anonymous", "false") == "true"
    return fs.GcsFileSystem(anonymous=is_anonymous, retry_time_limit=timedelta(seconds=GS_RETRY_S), **options)


def _s3(parts: SplitResult, for_clients: bool) -> fs.S3FileSystem:
    options = _options(parts)
    is_elsewhere = "endpoint_override" in options or any(
        os.environ.get(name) for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    )
    if "region" not in options and not any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        options["region"] = "us-east-1" if is_elsewhere else fs.resolve_s3_region(parts.netloc)
    return fs.S3FileSystem(
        **options,
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=CLIENTS_TIMEOUT_S if for_clients else REQUEST_TIMEOUT_S,
        background_writes=False,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=CLIENTS_ATTEMPTS if for_clients else S3_ATTEMPTS),
    )
