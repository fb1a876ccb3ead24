"""The state: what the log says now, kept by key (docs/architecture.md).

Owns: the database, its schema version, the offset up to which the log has been applied, and applying a group.
Never: the log. The state is always behind the log and never ahead; what a crash takes is applied again from there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final, final

from rocksdict import Rdict

from embermq.store.budgets import RetainedBudget
from embermq.store.errors import NewerSchema, StoreError
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.records import RETAIN_FLAG, Group, Kind
from embermq.store.state import history, rocks, sessions
from embermq.store.state.from_checkpoint import Restoration
from embermq.store.state.history import History
from embermq.store.state.retained import RetainedState
from embermq.store.state.retained_sizes import Sizes
from embermq.store.state.rocks import FLUSH_BYTES, Rocks
from embermq.store.state.sessions import SessionState
from embermq.store.state.to_checkpoint import KEYS_END, StateView
from embermq.store.state.topic_sources import HistoryTopics, RetainedTopics
from embermq.store.state.topic_walks import TopicSource
from embermq.store.state.wills import WillState
from embermq.store.state.write_buffer import BUFFER_ENTRIES_MAX, Batch
from embermq.store.topic_tree import Moments

SCHEMA_VERSION: Final = 3
"""2 added what only MQTT 5 can ask for, 3 series of changes. An older state is read as it is: it has none of that."""
FLUSH_RECORDS: Final = 200_000
"""The state is flushed after this many applied records at the latest: a start applies no more than these again."""
GROUP_WEIGHT: Final = 10
"""Reading a group costs a start about as much as this many records."""

_SCHEMA: Final = b"\x00schema"
_APPLIED: Final = b"\x00applied"
_NUMBER: Final = Struct("<Q")
_PUBLISH: Final = int(Kind.PUBLISH)  # comparing with a member of an enum costs three times as much
_RETAINED_REMOVED: Final = int(Kind.RETAINED_REMOVED)
_WILLS: Final = frozenset((int(Kind.WILL_SET), int(Kind.WILL_CLEARED)))
_NOT_OF_SESSIONS: Final = _WILLS | {int(Kind.CONNECTED), int(Kind.RETAINED_COPY)}


@dataclass(frozen=True, slots=True)
class StateSettings:
    """The bounds of the state's work and what it stands on; tests make rare things frequent with small ones."""

    flush_records: int = FLUSH_RECORDS
    chunk_entries: int = sessions.CHUNK_ENTRIES
    clean_every: int = sessions.CLEAN_EVERY
    forgotten_topics: int = history.CHUNK_TOPICS
    schema_version: int = SCHEMA_VERSION
    stall_waits_max: int = rocks.STALL_WAITS_MAX
    buffer_entries_max: int = BUFFER_ENTRIES_MAX
    make_sizes: Callable[[], Sizes] = Sizes
    open_database: Callable[[Path], Rdict] = rocks.open_database
    free_bytes: Callable[[Path], int] = rocks.free_bytes


@final
class State:
    """The state of one directory. One thread applies; another may ask."""

    __slots__ = (
        "_applied",
        "_flush_records",
        "_is_larger",
        "_rocks",
        "_schema_version",
        "_unflushed",
        "_written",
        "history",
        "retained",
        "sessions",
        "wills",
    )

    def __init__(
        self, directory: Path, budgets: Sequence[RetainedBudget] = (), settings: StateSettings | None = None
    ) -> None:
        settings = settings if settings is not None else StateSettings()
        self._flush_records: Final = settings.flush_records
        self._schema_version: Final = settings.schema_version
        self._rocks: Final = Rocks(
            directory,
            settings.open_database,
            settings.free_bytes,
            settings.stall_waits_max,
            settings.buffer_entries_max,
        )
        try:
            self._check_schema(directory)
            self.retained: Final = RetainedState(self._rocks, budgets, settings.make_sizes)
            self.history: Final = History(self._rocks, self.retained, settings.forgotten_topics)
            self.sessions: Final = SessionState(self._rocks, settings.chunk_entries, settings.clean_every)
            self.wills: Final = WillState(self._rocks, self.sessions)
            self._applied = self._written = self._number(_APPLIED)
            self._unflushed = 0
            self._is_larger = True  # the memtable may have grown since its size was asked for
        except BaseException:
            self._rocks.close()
            raise

    def topics(self, moments: Moments, now_us: int) -> TopicSource:
        """The topics that have a message now, or had one at an instant."""
        if not moments.as_of_us and not moments.compare_us:
            return RetainedTopics(self._rocks)
        return HistoryTopics(self.history, moments, now_us)

    def reopen(self, catch_up: Callable[["State"], None]) -> None:
        """Begin again after a failed write, once the disk has space; `catch_up` applies the records that were lost.

        Readers wait until that is done. Raises like the failed write as long as it is of no use.
        """
        if not self._rocks.has_space():
            raise StoreError("the state cannot be written: no space left on its disk")
        with self._rocks.lock:
            self._rocks.reopen()
            self._applied = self._written = self._number(_APPLIED)
            self._unflushed = 0
            self.retained.load()
            self.history.load()
            catch_up(self)

    def applied_offset(self) -> int:
        """The newest offset whose record is in here; 0 if none is."""
        return self._applied

    def apply(self, group: Group) -> None:
        """All of a group, or nothing. Records that were applied before are passed over.

        A group that changes nothing is written only if a flush is due. Without it, the offset in the database is that
        of an older group, and a start passes over the same records once more.
        """
        skip = max(0, self._applied + 1 - group.first_offset)
        if skip >= len(group):
            return
        retained_rows: list[int] = []
        session_rows: list[int] = []
        will_rows: list[int] = []
        kinds, flags = group.kinds, group.flags
        for row in range(skip, len(kinds)):
            kind = kinds[row]
            if kind == _PUBLISH:
                if flags[row] & RETAIN_FLAG:
                    retained_rows.append(row)
            elif kind == _RETAINED_REMOVED:
                retained_rows.append(row)
            elif kind not in _NOT_OF_SESSIONS:
                session_rows.append(row)
            elif kind in _WILLS:
                will_rows.append(row)
        applied = group.first_offset + len(group) - 1
        unflushed = self._unflushed + applied - self._applied + GROUP_WEIGHT
        if retained_rows or session_rows or will_rows or unflushed >= self._flush_records:
            self._write(group, applied, retained_rows, session_rows, will_rows)
        self._unflushed = unflushed
        self._applied = applied

    def _write(
        self, group: Group, applied: int, retained_rows: list[int], session_rows: list[int], will_rows: list[int]
    ) -> None:
        def fill(batch: Batch) -> None:
            if retained_rows:
                self.retained.stage(batch, group, retained_rows)
            if session_rows:
                self.sessions.stage(batch, group, session_rows)
            if will_rows:
                self.wills.stage(batch, group, will_rows)
            batch.put(_APPLIED, _NUMBER.pack(applied))

        self._rocks.write(fill)
        self._written = applied
        self._is_larger = True

    def wants_flush(self) -> bool:
        """Whether enough was applied since the last flush."""
        if self._unflushed >= self._flush_records:
            return True
        is_larger, self._is_larger = self._is_larger, False
        return is_larger and self._rocks.memtable_bytes() >= FLUSH_BYTES

    def flush(self, wait: bool) -> None:
        """Make durable what was applied. The log must hold all of it durably before."""
        applied = self._applied
        if self._written < applied:
            self._rocks.write(lambda batch: batch.put(_APPLIED, _NUMBER.pack(applied)))
            self._written = applied
        self._rocks.flush(wait)
        self._unflushed = 0

    def has_buffered(self) -> bool:
        """Whether something was applied that is not in the database yet."""
        return self._rocks.has_buffered()

    def is_buffer_read(self) -> bool:
        """Whether a reader has asked for a range of what is not in the database yet."""
        return self._rocks.is_buffer_read()

    def write_buffered(self) -> None:
        """Write it there: while groups come, that is done for many together."""
        self._rocks.write_buffered()

    def owed_offset(self) -> int | None:
        """The lowest log offset that any session is still owed; None if none is owed anything."""
        return min((offset for offset in self.sessions.owed_offsets() if offset is not None), default=None)

    def forget(self, groups: Iterable[Group], before_offset: int, last_timestamp_us: int) -> Iterator[None]:
        """Drop what refers to the log before an offset; `last_timestamp_us` is that of its last record. In pieces."""
        # Record the new beginning before anything is deleted, so that a crash in between leaves no partial history.
        self.history.begin(before_offset, last_timestamp_us)
        yield from self.history.forget(groups, before_offset)
        self.flush(wait=True)

    def view(self) -> StateView:
        """The state as it is now, for a checkpoint."""
        return StateView(self._rocks)

    def restore(self, checkpoint: Checkpoint, rest: Callable[[], None] | None = None) -> None:
        """Become what a checkpoint says, whatever was in here. After a crash in between nothing counts as applied.

        `rest` is called after each group.
        """

        def clear(batch: Batch) -> None:
            batch.delete_range(b"", KEYS_END)
            batch.put(_SCHEMA, _NUMBER.pack(self._schema_version))

        self._rocks.write(clear)
        self._applied = self._written = 0
        self.retained.load()
        restoration = Restoration(self.retained, self.sessions, self.wills)
        for group in checkpoint.groups():
            self._rocks.write(partial(restoration.stage, found=group))
            restoration.count(group)
            if rest is not None:
                rest()
        self._rocks.write(restoration.finish)
        self.history.begin(checkpoint.offset, checkpoint.timestamp_us)
        self._rocks.write(lambda batch: batch.put(_APPLIED, _NUMBER.pack(checkpoint.offset - 1)))
        self.flush(wait=True)
        self._applied = self._written = checkpoint.offset - 1
        self.retained.load()

    def close(self) -> None:
        try:
            self.flush(wait=True)
        finally:
            self._rocks.close()

    def _number(self, key: bytes) -> int:
        value = self._rocks.get(key)
        return int.from_bytes(value, "little") if value else 0

    def _check_schema(self, directory: Path) -> None:
        found = self._number(_SCHEMA)
        if found > self._schema_version:
            raise NewerSchema(
                f"the state in {directory} has schema {found}, this EmberMQ knows schemas up to {self._schema_version}:"
                " use a newer EmberMQ, or make a new state from the log with `ember store rebuild`"
            )
        if found < self._schema_version:
            self._rocks.write(lambda batch: batch.put(_SCHEMA, _NUMBER.pack(self._schema_version)))
