"""Messages of the log for one request, batch by batch: those that the log has, and those that only its archive has.

Owns: which threads read. The log is read on those for files; from where it was trimmed on, the request goes on to those
for the archive.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

from embermq.http.service import Service
from embermq.protocol.topics import matches
from embermq.store.log.errors import LogTrimmed

if TYPE_CHECKING:
    import pyarrow as pa

    from embermq.archive.joined import JoinedLog

BATCH_RECORDS: Final = 2_000
BATCH_BYTES: Final = 1024 * 1024

T = TypeVar("T")


@final
class LogReading:
    """The log as one request reads it. LogTrimmed if neither the log nor an archive has what is asked for."""

    __slots__ = (
        "_batches",
        "_directory",
        "_end",
        "_is_archived",
        "_narrow",
        "_service",
        "_topic_filter",
        "following",
        "read_bytes",
    )

    def __init__(
        self,
        service: Service,
        directory: Path,
        topic_filter: str | None,
        narrow: "Callable[[pa.RecordBatch], pa.RecordBatch] | None",
    ) -> None:
        self._service: Final = service
        self._directory: Final = directory
        self._topic_filter: Final = topic_filter
        self._narrow: Final = narrow  # to what may be read
        self._is_archived = False
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._end = 0
        self.following = 0
        """The offset after the last record that was read."""
        self.read_bytes = 0

    @property
    def has_archive(self) -> bool:
        return self._service.archived is not None

    @property
    def is_at_end(self) -> bool:
        """Whether all was read."""
        return self.following >= self._end

    async def begin(self, bounds: "Callable[[JoinedLog], tuple[int, int]]") -> None:
        """Ask the log for the first offset that is wanted, and the one after the last."""
        self.following, self._end = await self._ask(bounds)

    async def next(self) -> "pa.RecordBatch | None":
        """The messages of the next batch that the filter matches, perhaps none; None at the end."""
        return await self._ask(self._next)

    async def _ask(self, call: "Callable[[JoinedLog], T]") -> T:
        archived = self._service.archived
        if not self._is_archived:
            try:
                return await self._service.on_thread(partial(self._of_log, call))
            except LogTrimmed:
                if archived is None:
                    raise
            self._is_archived = True
            self._batches = None
        assert archived is not None
        return await archived.on_thread(lambda: call(archived.log()))

    def _of_log(self, call: "Callable[[JoinedLog], T]") -> T:
        from embermq.archive.joined import JoinedLog

        return call(JoinedLog(self._directory))

    def _next(self, log: "JoinedLog") -> "pa.RecordBatch | None":
        if self._batches is None:
            self._batches = log.batches(self.following, self._end, BATCH_RECORDS, BATCH_BYTES)
        batch = next(self._batches, None)
        if batch is None:
            return None
        self.following = batch.column("offset")[-1].as_py() + 1
        self.read_bytes += batch.nbytes
        chosen = _chosen(batch, self._topic_filter)
        return chosen if self._narrow is None else self._narrow(chosen)


def _chosen(batch: "pa.RecordBatch", topic_filter: str | None) -> "pa.RecordBatch":
    """The messages of a batch that a filter matches."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from embermq.store.log.records import Kind

    batch = batch.filter(pc.equal(batch.column("kind"), pa.scalar(int(Kind.PUBLISH), pa.int8())))
    if topic_filter is not None:
        topics = pc.unique(batch.column("topic")).to_pylist()
        matching = [topic for topic in topics if matches(topic_filter, topic)]
        batch = batch.filter(pc.is_in(batch.column("topic"), pa.array(matching, pa.string())))
    return batch.set_column(1, "timestamp", batch.column("timestamp").cast(pa.int64()))
