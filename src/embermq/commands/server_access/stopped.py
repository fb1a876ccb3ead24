"""A stopped server, through its data directory: the store is opened under the lock that a server would take.

Messages are published with a core without connections, so that its limits apply and the queues of sessions get them.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, suppress
from itertools import chain
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, final

from embermq import __version__
from embermq.broker.access import AllowAll
from embermq.broker.core import Core
from embermq.broker.operator import cleared, publish, retained_message, retained_pieces
from embermq.commands.options import bar
from embermq.commands.server_access.target import Stat, Target
from embermq.engines import open_stopped_store
from embermq.protocol.packets import Publish
from embermq.store.engines.shared_log import PLACE
from embermq.store.errors import HistoryTrimmed
from embermq.store.interface import Retained, RetainedChange, StoreError

if TYPE_CHECKING:
    from embermq.history.rebuilt import ArchivedPast
    from embermq.settings import Settings

GROUP_MESSAGES: Final = 2_000
GROUP_BYTES: Final = 8 * 1024 * 1024
"""How much is made durable at once."""
CHANGES_AT_ONCE: Final = 100
FAILING_CHECK_S: Final = 1.0


@final
class StoppedServer(Target):
    """A data directory, locked until it is closed."""

    __slots__ = ("_archive", "_bug", "_calls", "_core", "_directory", "_limits", "_pending", "_store")

    def __init__(self, settings: "Settings") -> None:
        self._calls: Final[SimpleQueue[Callable[[], None]]] = SimpleQueue()
        self._limits: Final = settings.limits
        self._archive: Final = settings.store.archive
        self._directory: Final = settings.store.directory
        self._core: Core | None = None
        self._pending = 0
        self._bug: Exception | None = None
        with bar("opening") as step:
            self._store: Final = open_stopped_store(settings.store, self._calls.put, step)
        self._store.begin_turn(time.time_ns() // 1000)  # what has expired since the server stopped is not shown

    def messages(
        self, topic_filter: str, as_of_us: int | None = None, payload_bytes_max: int | None = None
    ) -> Iterator[tuple[Retained, int]]:
        pieces = retained_pieces(self._store, topic_filter, as_of_us)
        try:
            first = next(pieces, [])
        except HistoryTrimmed:
            if not self._archive or as_of_us is None:
                raise
            with self._past() as past:
                for piece in past.pieces(topic_filter, as_of_us):
                    for retained in piece:
                        yield retained, len(retained.payload)
            return
        for piece in chain([first], pieces):
            for retained in piece:
                yield retained, len(retained.payload)

    def message(self, topic_name: str, as_of_us: int | None = None) -> Retained | None:
        try:
            return retained_message(self._store, topic_name, as_of_us)
        except HistoryTrimmed:
            if not self._archive or as_of_us is None:
                raise
        with self._past() as past:
            return past.message(topic_name, as_of_us)

    def _past(self) -> "AbstractContextManager[ArchivedPast]":
        from embermq.history.rebuilt import CACHE, ArchivedPast

        return closing(ArchivedPast(self._archive, self._directory / CACHE, log_directory=self._directory / "log"))

    def changes(self, topic_name: str, since_us: int | None = None) -> Iterator[RetainedChange]:
        begins_us = self._store.history.begins_us()
        since_us = since_us or 0
        found = (
            self._archived_changes(topic_name, since_us, begins_us)
            if self._archive and begins_us and since_us <= begins_us
            else self._kept_changes(topic_name)
        )
        return (change for change in found if change.timestamp_us >= since_us)

    def _kept_changes(
        self, topic_name: str, after_offset: int = -1, before_offset: int = 1 << 62
    ) -> Iterator[RetainedChange]:
        """Those that the history has."""
        while found := self._store.history.changes(topic_name, after_offset, CHANGES_AT_ONCE):
            for change in found:
                if change.offset >= before_offset:
                    return
                yield change
            after_offset = found[-1].offset

    def _archived_changes(self, topic_name: str, since_us: int, begins_us: int) -> Iterator[RetainedChange]:
        """Those that only the archive has, and then those that the history has."""
        from embermq.history.archived_blocks import ArchivedBlocks
        from embermq.history.joined import JoinedLog

        directory = self._directory / "log"
        log = JoinedLog(directory, ArchivedBlocks(self._archive, directory))
        begins = log.offset_at(begins_us + 1)
        # The history has a copy of what was retained when the log was trimmed: that may be older than the archive.
        first = log.archive_begins(begins)[0]
        yield from self._kept_changes(topic_name, -1, first)
        for part in log.archived_changes(topic_name, since_us, first, begins):
            yield from part.changes
        yield from self._kept_changes(topic_name, begins - 1)

    def retain(self, messages: Iterable[Publish]) -> Iterator[str]:
        refusals: list[str] = []
        size_bytes = 0
        for message in messages:
            refusals.append(self._publish(message))
            size_bytes += len(message.payload)
            if len(refusals) >= GROUP_MESSAGES or size_bytes >= GROUP_BYTES:
                self._commit()
                yield from refusals
                refusals.clear()
                size_bytes = 0
        self._commit()
        yield from refusals

    def clear(self, topic_filter: str) -> Iterator[int]:
        messages = 0
        for piece in retained_pieces(self._store, topic_filter):
            for retained in piece:
                refusal = self._publish(cleared(retained))
                if refusal:
                    raise StoreError(f"cleared {messages} messages, then not {retained.topic_name}: {refusal}")
            self._commit()
            messages += len(piece)
            yield messages

    def stat(self) -> Stat:
        store = self._store
        count, size_bytes = store.retained.totals()
        return Stat(
            process=0,
            retained_count=count,
            retained_bytes=size_bytes,
            budgets=store.retained.budget_totals(),
            sessions=sum(1 for _ in store.sessions.load()),
            next_offset=store.next_offset(),
            failing=store.failing(),
        )

    def close(self) -> None:
        self._store.close()

    def _publish(self, message: Publish) -> str:
        core = self._core
        if core is None:
            if (self._directory / PLACE).exists():
                raise StoreError(
                    "this is the data directory of a node of a cluster: change retained messages while it runs,"
                    " at its active node"
                )
            core = Core(self._store, AllowAll(), self._limits, lambda: None, self._found_bug, __version__, "operator")
            self._store.begin_turn(time.time_ns() // 1000)
            core.restore(time.monotonic_ns() // 1_000_000, time.time_ns() // 1000)
            self._core = core
        self._store.begin_turn(time.time_ns() // 1000)
        refusal = publish(core, self._store, self._limits, message, self._durable)
        if not refusal:
            self._pending += 1
        return refusal

    def _durable(self) -> None:
        self._pending -= 1

    def _found_bug(self, error: Exception) -> None:
        self._bug = error

    def _commit(self) -> None:
        """Wait until all accepted messages are durable. The committer's thread answers through the queue of calls."""
        core = self._core
        while self._pending and core is not None:
            while core.end_turn():  # a large group is released in several turns
                pass
            with suppress(Empty):
                self._calls.get(timeout=FAILING_CHECK_S)()
            if self._store.failing():
                raise StoreError(f"nothing can be made durable: {self._store.failing()}")
            if self._bug is not None:
                raise self._bug
