"""The uploader: copies closed segments and checkpoints to the archive, beside a running server.

Owns: its thread, what is uploaded next, trying again when that fails, and the retention of the archive.
Never: anything that the broker waits for. The log is trimmed no further than `archived_before`, up to a bound.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final, final

from embermq.archive.address import parse_address
from embermq.archive.archive import missing
from embermq.archive.errors import ArchiveError
from embermq.archive.manifest import ArchivedCheckpoint, ArchivedSegment
from embermq.archive.objects import Objects
from embermq.archive.retention import ArchiveRetention, expired
from embermq.archive.writer import ArchiveWriter
from embermq.named_thread import NamedThread
from embermq.store.engines.retention import Archiver
from embermq.store.log.checkpoint import Checkpoint, checkpoint_offsets
from embermq.store.log.errors import LogError
from embermq.store.log.identity import log_identity
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import first_offsets
from embermq.store.segment import Segment

CHECK_S: Final = 10.0
"""How often the uploader looks for something to do without being told."""
RETRY_FIRST_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
SAY_AGAIN_S: Final = 600.0
"""A failure that lasts is said again after this time."""
STOP_S: Final = 10.0
"""How long a server that stops waits for the last uploads."""
WORK_SHARE: Final = 0.5
"""How much of the time the thread works; the rest it leaves to the other threads."""

_logger: Final = logging.getLogger("embermq.archive")


@dataclass(frozen=True, slots=True)
class UploadSettings:
    """Where to, what is kept there, and times that tests make short."""

    address: str
    retention: ArchiveRetention = field(default_factory=ArchiveRetention)
    check_s: float = CHECK_S
    retry_first_s: float = RETRY_FIRST_S
    stop_s: float = STOP_S


class _Stopped(Exception):
    """The server stops, and has waited long enough."""


@final
class Uploader(Archiver):
    """Uploads what is closed, oldest first, until it is closed itself."""

    def __init__(self, settings: UploadSettings, now_s: Callable[[], float] = monotonic) -> None:
        self._settings: Final = settings
        self._now_s: Final = now_s
        self._directory = Path()
        self._writer: ArchiveWriter | None = None
        self._segments: dict[int, ArchivedSegment] = {}
        self._checkpoints: dict[int, ArchivedCheckpoint] = {}
        self._damaged: Final[set[tuple[str, int]]] = set()  # what cannot be uploaded, by suffix and offset
        self._done: tuple[list[int], list[int]] = [], []  # the segments and checkpoints of the last look at the log
        self._archived_before = 0
        self._pending_bytes = 0
        self._uploaded_bytes = 0
        self._uploads = 0
        self._failures = 0
        self._succeeded_s = now_s()
        self._worked_from_s = now_s()
        self._stop_at_s = float("inf")
        self._said = ""
        self._said_s = 0.0
        self._awake: Final = Event()
        self._closing: Final = Event()
        self._thread: Final = NamedThread(self._run, "ember-archive")

    def begin(self, log_directory: Path) -> None:
        self._directory = log_directory
        self._thread.start()

    def wake(self) -> None:
        self._awake.set()

    def archived_before(self) -> int:
        return self._archived_before

    def counts(self) -> dict[str, int]:
        return {
            "archive/uploads": self._uploads,
            "archive/uploaded-bytes": self._uploaded_bytes,
            "archive/pending-bytes": self._pending_bytes,
            "archive/failures": self._failures,
            "archive/success-age-s": int(self._now_s() - self._succeeded_s),
        }

    def close(self) -> None:
        """Stop. A server whose uploads succeed waits for the last ones, for a while."""
        self._stop_at_s = self._now_s() + (0.0 if self._said else self._settings.stop_s)
        self._closing.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join(self._settings.stop_s + 1)
        if self._pending_bytes:
            _logger.warning(
                "stopped before all is archived: %d bytes are uploaded at the next start", self._pending_bytes
            )

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        retry_s = self._settings.retry_first_s
        while True:
            self._awake.clear()
            is_last = self._closing.is_set()  # after that: `close` sets this one first
            try:
                self._upload_all()
            except _Stopped:
                return
            except Exception as error:
                # Whatever it is: the broker goes on, and so does this thread.
                self._failed(error)
                wait_s, retry_s = retry_s, min(2 * retry_s, RETRY_MAX_S)
                if self._closing.wait(wait_s):
                    return
                continue
            retry_s = self._settings.retry_first_s
            self._succeeded()
            if is_last:
                return
            self._awake.wait(self._settings.check_s)

    def _upload_all(self) -> None:
        """Upload everything that is closed and not in the archive, by offset."""
        files = first_offsets(self._directory), checkpoint_offsets(self._directory)
        if files == self._done and self._writer is not None:
            return
        reader = LogReader(self._directory)
        self._count(reader.segments()[:-1])
        if self._writer is None:
            self._writer = self._open()
            self._know(self._writer)
        segments = reader.segments()[:-1]
        self._count(segments)
        checkpoints = self._new_checkpoints(segments[-1].next_offset if segments else 0)
        has_news = False
        for info in segments:
            while checkpoints and checkpoints[0] <= info.first_offset:
                has_news = self._claimed(has_news)
                self._upload_checkpoint(checkpoints.pop(0))
            if self._is_new(info):
                has_news = self._claimed(has_news)
                self._upload_segment(reader, info)
                self._count(segments)
            self._archived_before = info.next_offset
        for offset in checkpoints:
            has_news = self._claimed(has_news)
            self._upload_checkpoint(offset)
        if has_news:
            self._delete_expired(self._writer)
        self._done = files

    def _open(self) -> ArchiveWriter:
        objects = Objects(parse_address(self._settings.address))
        return ArchiveWriter(objects, log_identity(self._directory), self._pace)

    def _know(self, writer: ArchiveWriter) -> None:
        """Look what the archive has, once it is clear that this log may write there."""
        try:
            writer.claim()
            self._segments = {segment.first_offset: segment for segment in writer.archive.segments()}
            self._checkpoints = {checkpoint.offset: checkpoint for checkpoint in writer.archive.checkpoints()}
        except BaseException:
            self._writer = None
            raise
        archived = list(self._segments.values())
        lost = [(one.lost_from, one.first_offset) for one in writer.archive.generations()]
        for first, end in missing(archived):
            if (first, end) in lost:
                continue
            _logger.warning("the archive %s has no records from offset %d to %d", writer.archive.shown, first, end - 1)
        _logger.info(
            "the archive %s has %d segments, up to offset %d",
            writer.archive.shown,
            len(archived),
            archived[-1].next_offset - 1 if archived else 0,
        )

    def _claimed(self, has_news: bool) -> bool:
        """Before the first of some uploads: look whether this log still may write there."""
        if not has_news:
            self._the_writer().claim()
        return True

    def _is_new(self, info: Segment) -> bool:
        known = self._segments.get(info.first_offset)
        if known is None:
            return (".log", info.first_offset) not in self._damaged
        if (known.next_offset, known.first_timestamp_us, known.last_timestamp_us, known.blocks) != (
            info.next_offset,
            info.first_timestamp_us,
            info.last_timestamp_us,
            info.blocks,
        ):
            raise ArchiveError(
                f"{self._the_writer().archive.shown} has another segment of offset {info.first_offset} than this log:"
                " a copy of this data directory writes there; name another prefix in store.archive of one of the two"
            )
        return False

    def _new_checkpoints(self, up_to: int) -> list[int]:
        return [
            offset
            for offset in checkpoint_offsets(self._directory)
            if offset <= up_to and offset not in self._checkpoints and (".ckpt", offset) not in self._damaged
        ]

    def _upload_segment(self, reader: LogReader, info: Segment) -> None:
        try:
            entries = reader.entries(info.first_offset, info.blocks)
            archived = self._the_writer().upload_segment(info, entries)
        except LogError as error:
            self._damaged.add((".log", info.first_offset))
            _logger.error("the segment of offset %d cannot be archived: %s", info.first_offset, error)
            return
        except FileNotFoundError:  # trimmed meanwhile
            return
        self._segments[info.first_offset] = archived
        self._uploads += 1
        _logger.info("archived the segment of offset %d, %d bytes", info.first_offset, archived.size_bytes)

    def _upload_checkpoint(self, offset: int) -> None:
        try:
            archived = self._the_writer().upload_checkpoint(Checkpoint(self._directory, offset))
        except LogError as error:
            self._damaged.add((".ckpt", offset))
            _logger.error("the checkpoint of offset %d cannot be archived: %s", offset, error)
            return
        except FileNotFoundError:  # superseded meanwhile
            return
        self._checkpoints[offset] = archived
        self._uploads += 1
        _logger.info("archived the checkpoint of offset %d, %d bytes", offset, archived.size_bytes)

    def _delete_expired(self, writer: ArchiveWriter) -> None:
        """Remove what has outlived the retention of the archive."""
        segments, checkpoints = expired(
            self._settings.retention, list(self._segments.values()), list(self._checkpoints.values())
        )
        for checkpoint in checkpoints:
            writer.delete(checkpoint)
            del self._checkpoints[checkpoint.offset]
        for segment in segments:
            writer.delete(segment)
            del self._segments[segment.first_offset]
            _logger.info("removed the segment of offset %d from the archive", segment.first_offset)

    def _the_writer(self) -> ArchiveWriter:
        assert self._writer is not None
        return self._writer

    def _pace(self, size_bytes: int) -> None:
        """Leave the interpreter and the disk to the others for as long as the last piece took."""
        worked_s = self._now_s() - self._worked_from_s
        self._closing.wait(min(1.0, worked_s * (1 - WORK_SHARE) / WORK_SHARE))
        if self._now_s() >= self._stop_at_s:
            raise _Stopped
        self._worked_from_s = self._now_s()
        self._uploaded_bytes += size_bytes

    def _count(self, segments: Sequence[Segment]) -> None:
        self._pending_bytes = sum(
            info.size_bytes
            for info in segments
            if info.first_offset not in self._segments and (".log", info.first_offset) not in self._damaged
        )

    def _succeeded(self) -> None:
        self._succeeded_s = self._now_s()
        if self._said:
            self._said = ""
            _logger.warning("the archive is up to date again, up to offset %d", self._archived_before - 1)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        with suppress(LogError, OSError):
            self._count(LogReader(self._directory).segments()[:-1])
        is_known = isinstance(error, (ArchiveError, LogError, OSError))
        sentence = str(error) if is_known else repr(error)
        if sentence != self._said or self._now_s() - self._said_s >= SAY_AGAIN_S:
            self._said, self._said_s = sentence, self._now_s()
            _logger.error("not archived, this is tried again: %s", sentence, exc_info=None if is_known else error)
