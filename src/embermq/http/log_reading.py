"""Messages of the log for one request, piece by piece: those that the log has, and those that only its archive has.

Owns: which threads read. The log is read on those for files; from where it was trimmed on, the request goes on to those
for the archive.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

from embermq.http.service import Service
from embermq.store.log.errors import LogTrimmed

if TYPE_CHECKING:
    from embermq.history.joined import JoinedLog
    from embermq.store.log.message_filter import MessageFilter
    from embermq.store.log.reader import ReadBlocks
    from embermq.store.rows import LogRow

PIECE_RECORDS: Final = 2_000
PIECE_BYTES: Final = 1024 * 1024

T = TypeVar("T")


@final
class LogReading:
    """The log as one request reads it. LogTrimmed if neither the log nor an archive has what is asked for."""

    __slots__ = (
        "_directory",
        "_end",
        "_filter",
        "_is_archived",
        "_narrow",
        "_runs",
        "_service",
        "following",
        "read_bytes",
    )

    def __init__(
        self,
        service: Service,
        directory: Path,
        filter: "MessageFilter",
        narrow: "Callable[[list[LogRow]], list[LogRow]] | None",
    ) -> None:
        self._service: Final = service
        self._directory: Final = directory
        self._filter: Final = filter
        self._narrow: Final = narrow  # to what may be read
        self._is_archived = False
        self._runs: Iterator[ReadBlocks] | None = None
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

    async def next(self) -> "list[LogRow] | None":
        """The messages of the next piece that the filter matches, perhaps none; None at the end."""
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
            self._runs = None
        assert archived is not None
        return await archived.on_thread(lambda: call(archived.log))

    def _of_log(self, call: "Callable[[JoinedLog], T]") -> T:
        from embermq.history.joined import JoinedLog

        return call(JoinedLog(self._directory))

    def _next(self, log: "JoinedLog") -> "list[LogRow] | None":
        if self._runs is None:
            self._runs = log.runs(self.following, self._end, PIECE_RECORDS, PIECE_BYTES)
        read = next(self._runs, None)
        if read is None:
            return None
        chosen = self._filter.messages(read)
        self.following = read.end
        self.read_bytes += len(read.data)
        return chosen if self._narrow is None else self._narrow(chosen)
