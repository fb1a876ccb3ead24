"""Messages that only the archive has, for requests."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

from embermq.http.past.threads import ArchiveThreads

if TYPE_CHECKING:
    from embermq.history.joined import JoinedLog

ARCHIVE_THREADS: Final = 2
"""How many requests wait for the archive at a time."""

T = TypeVar("T")


@final
class ArchivedMessages:
    """Messages that only the archive has: on threads of their own, so that no other request waits for it."""

    __slots__ = ("_address", "_joined", "_log_directory", "_threads", "first_us")

    def __init__(self, address: str, log_directory: Path) -> None:
        self._address: Final = address
        self._log_directory: Final = log_directory
        self._joined: JoinedLog | None = None
        self._threads: Final = ArchiveThreads(ARCHIVE_THREADS, "ember-archived")
        self.first_us = 0
        """The instant of the first record of log and archive, when that was last asked; 0 if it was not."""

    def log(self) -> "JoinedLog":
        """The log with its archive. Its calls are for the threads."""
        if self._joined is None:
            from embermq.history.archived_blocks import ArchivedBlocks
            from embermq.history.joined import JoinedLog

            self._joined = JoinedLog(self._log_directory, ArchivedBlocks(self._address, self._log_directory))
        return self._joined

    async def on_thread(self, call: Callable[[], T]) -> T:
        """Do something that waits for the archive."""
        return await self._threads.run(call)

    def close(self) -> None:
        """No call follows."""
        self._threads.close()
