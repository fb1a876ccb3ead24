"""The log of a running server, read over HTTP."""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, final

import pyarrow as pa

from embermq.history.errors import ServerRefused
from embermq.history.gathering import gathered
from embermq.history.location import LogLocation
from embermq.history.requests import Requests
from embermq.history.source import COMMIT_US_MAX, LogEnd, ReadableLog, SegmentStart
from embermq.instants import instant_us
from embermq.store.log.checkpoint import Checkpoint, checkpoint_path
from embermq.store.log.entries import Entries
from embermq.store.log.errors import LogCorrupt, LogTrimmed, NotALog
from embermq.store.log.segments import ENTRY_BYTES

ANSWER_BYTES: Final = 8 << 20
GONE: Final = 410
NO_LOG: Final = 409
FORBIDDEN: Final = 403
_COUNT: Final = Struct("<Q")
_SECONDS_MAX: Final = 9_999_999_999

_logger: Final = logging.getLogger(__name__)


class _Blocks(NamedTuple):
    """Neighbouring blocks of a segment and their index entries."""

    entries: Entries
    data: memoryview

    @property
    def next_offset(self) -> int:
        return self.entries.next_offset()


@final
class ServerLog(ReadableLog):
    """A log whose disk another machine has. For one thread at a time."""

    __slots__ = ("_is_forbidden", "_requests")

    def __init__(self, location: LogLocation) -> None:
        self._requests: Final = Requests(location)
        self._is_forbidden = False

    @property
    def name(self) -> str:
        return f"the log of {self._requests.url}"

    def log_id(self) -> str | None:
        """Which log it is; None if the server does not say."""
        found = self._facts().get("log_id")
        return None if found is None else str(found)

    def bounds(self) -> tuple[int, int]:
        facts = self._facts()
        return int(facts["first_offset"]), int(facts["next_offset"])

    def end(self) -> LogEnd:
        """By the clock of the server, which gives the records their timestamps."""
        next_offset = self.bounds()[1]
        return LogEnd(next_offset, self._requests.server_time_us() - COMMIT_US_MAX)

    def _facts(self) -> dict[str, Any]:
        try:
            return self._requests.get_json("/api/v1/log")
        except ServerRefused as refusal:
            if refusal.status == NO_LOG:
                raise NotALog(self._requests.url, refusal.sentence) from None
            raise

    def offset_at(self, timestamp_us: int) -> int:
        seconds, microseconds = divmod(max(0, timestamp_us), 1_000_000)
        at = f"{min(seconds, _SECONDS_MAX)}.{microseconds:06d}"
        return int(self._requests.get_json("/api/v1/log/offset", {"at": at})["offset"])

    def segment_of(self, offset: int) -> SegmentStart | None:
        query = {"from_offset": max(0, offset), "limit": 1}
        for item in self._requests.get_json("/api/v1/log/segments", query)["items"]:
            if item["first_offset"] <= offset:
                since = item.get("first_timestamp")
                return SegmentStart(int(item["first_offset"]), None if since is None else instant_us(since))
        return None

    def batches(self, start: int, end: int, rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if end <= start:
            return
        durable = self.bounds()[1]
        if end > durable:
            raise ValueError(f"offset {end - 1} is not in the log yet, which ends before offset {durable}")
        # The next answer is on its way while this one becomes rows.
        with ThreadPoolExecutor(1, "ember-log") as ahead:
            answer = ahead.submit(self._blocks, start, end)
            while start < end:
                found = answer.result()
                if found.next_offset < end:
                    answer = ahead.submit(self._blocks, found.next_offset, end)
                yield from gathered(self.name, found.data, found.entries, start, end, rows, columns)
                start = found.next_offset

    def _blocks(self, start: int, end: int) -> _Blocks:
        query = {"from_offset": start, "to_offset": end, "bytes_max": ANSWER_BYTES}
        try:
            data = self._requests.get_bytes("/api/v1/log/blocks", query)
        except ServerRefused as refusal:
            if refusal.status == GONE:
                raise LogTrimmed(start, self.bounds()[0]) from None
            raise
        (count,) = _COUNT.unpack_from(data) if len(data) > _COUNT.size else (0,)
        head = _COUNT.size + count * ENTRY_BYTES
        if not count or head > len(data):
            raise LogCorrupt(self.name, 0, f"the answer for offset {start} has no blocks")
        entries = Entries(bytes(data[_COUNT.size : head]))
        found = _Blocks(entries, memoryview(data)[head:])
        first, position = entries.first_offset(0), entries.position(0)
        is_sound = entries.consistent(position, first) == count and len(found.data) == entries.end() - position
        if not is_sound or not first <= start < found.next_offset:
            raise LogCorrupt(self.name, 0, f"the answer for offset {start} has other blocks than it says")
        return found

    @contextmanager
    def undamaged_checkpoint(self, first_offset: int, next_offset: int) -> Iterator[Checkpoint | None]:
        with TemporaryDirectory(prefix="embermq-") as directory:
            yield self._fetch_undamaged(Path(directory), first_offset, next_offset)

    def _fetch_undamaged(self, directory: Path, first_offset: int, next_offset: int) -> Checkpoint | None:
        for facts in self._facts()["checkpoints"]:
            offset = int(facts["offset"])
            if not first_offset <= offset <= next_offset:
                continue
            try:
                self._fetch_checkpoint(offset, checkpoint_path(directory, offset))
                checkpoint = Checkpoint(directory, offset)
                checkpoint.check()
            except LogCorrupt:
                continue
            except ServerRefused as refusal:
                if refusal.status != GONE:
                    raise
                continue
            return checkpoint
        return None

    def _fetch_checkpoint(self, offset: int, path: Path) -> None:
        with path.open("wb") as file:
            while True:
                query = {"offset": offset, "position": file.tell(), "bytes_max": ANSWER_BYTES}
                piece = self._requests.get_bytes("/api/v1/log/checkpoint", query)
                if not piece:
                    return
                file.write(piece)

    def register_reader(self, name: str, next_offset: int) -> None:
        if self._is_forbidden:
            return
        try:
            self._requests.post("/api/v1/log/readers", {"name": name, "next_offset": next_offset})
        except ServerRefused as refusal:
            if refusal.status != FORBIDDEN:
                raise
            self._is_forbidden = True
            _logger.warning("the server does not wait for this pipeline before it trims its log: %s", refusal.sentence)
