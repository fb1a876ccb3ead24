"""The state: what the log says now, kept by key (docs/architecture.md).

Owns: the database, its schema version, the offset up to which the log has been applied, and applying a group.
Never: the log. The state is always behind the log and never ahead.

A group is in the log, durable as the settings say, before it is applied. From there it passes through three places:
1. the write buffer (`write_buffer`): objects in this process. A reader finds here what was applied last;
2. RocksDB's memtable, without a write-ahead log: the same process, so a crash takes both;
3. RocksDB's files: what a flush has made durable. The log is synced before each flush.
A group moves from one place to the next as a whole and in order, together with the offset of its last record. So
whatever a crash leaves in the files is the state after some group, and says after which one.

What a crash loses: places 1 and 2, of which a flush is begun after `FLUSH_RECORDS` records or `FLUSH_BYTES`. A start
reads the offset in the files and applies the records after it from the log, before anybody is served. If the log no
longer has all of them, the state is made from a checkpoint and the log after it (`replay`); if the files cannot be
opened, `ember store rebuild` does the same.
What a refused write loses: nothing, since the log has it. A database that has refused one write takes no other. What it
has not taken stays readable; `reopen` begins again from the files, as a start does.
No record is applied twice: totals count each change. So records up to the offset are passed over.
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
from embermq.store.rows import RETAIN_FLAG, Group, Kind, LogRow
from embermq.store.state import history, rocks, sessions
from embermq.store.state.checkpoint_form import KEYS_END, Restoration, StateView
from embermq.store.state.history import History
from embermq.store.state.retained import RetainedState
from embermq.store.state.retained_sizes import Sizes
from embermq.store.state.rocks import FLUSH_BYTES, Rocks
from embermq.store.state.sessions import SessionState
from embermq.store.state.topic_sources import HistoryTopics, RetainedTopics
from embermq.store.state.write_buffer import BUFFER_ENTRIES_MAX, Batch
from embermq.store.topic_tree import Moments, TopicSource

SCHEMA_VERSION: Final = 4
"""2 added what only MQTT 5 can ask for, 3 series of changes, 4 ids of sessions that are not the offset of a record. An
older state is read as it is: it has none of that."""
FLUSH_RECORDS: Final = 200_000
"""The state is flushed after this many applied records at the latest: a start applies no more than these again."""
GROUP_WEIGHT: Final = 10
"""Reading a group costs a start about as much as this many records."""

_SCHEMA: Final = b"\x00schema"
_APPLIED: Final = b"\x00applied"
_NUMBER: Final = Struct("<Q")
_PUBLISH: Final = int(Kind.PUBLISH)  # comparing with a member of an enum costs three times as much
_RETAINED_REMOVED: Final = int(Kind.RETAINED_REMOVED)
_UNAPPLIED: Final = frozenset((int(Kind.CONNECTED), int(Kind.RETAINED_COPY)))


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

    def __init__(
        self, directory: Path, budgets: Sequence[RetainedBudget] = (), settings: StateSettings | None = None
    ) -> None:
        settings = settings if settings is not None else StateSettings()
        self._flush_records: Final = settings.flush_records
        self._schema_version: Final = settings.schema_version
        sizes = settings.make_sizes()
        self._rocks: Final = Rocks(
            directory,
            settings.open_database,
            settings.free_bytes,
            settings.stall_waits_max,
            settings.buffer_entries_max,
            sizes,
        )
        try:
            self._check_schema(directory)
            self.retained: Final = RetainedState(self._rocks, budgets, sizes)
            self.history: Final = History(self._rocks, self.retained, settings.forgotten_topics)
            self.sessions: Final = SessionState(self._rocks, settings.chunk_entries, settings.clean_every)
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
        before = self._applied
        applied = group.next_offset - 1
        if applied <= before:
            return
        retained_rows: list[LogRow] = []
        session_rows: list[LogRow] = []
        for row in group.rows:
            kind = row.kind
            if row.offset <= before:
                continue
            if kind == _PUBLISH:
                if row.flags & RETAIN_FLAG:
                    retained_rows.append(row)
            elif kind == _RETAINED_REMOVED:
                retained_rows.append(row)
            elif kind not in _UNAPPLIED:
                session_rows.append(row)
        unflushed = self._unflushed + applied - before + GROUP_WEIGHT
        if retained_rows or session_rows or unflushed >= self._flush_records:
            self._write(applied, retained_rows, session_rows)
        self._unflushed = unflushed
        self._applied = applied

    def _write(self, applied: int, retained_rows: list[LogRow], session_rows: list[LogRow]) -> None:
        batch = Batch()
        if session_rows:
            self.sessions.stage(batch, session_rows)
        batch.put(_APPLIED, _NUMBER.pack(applied))
        if retained_rows:
            self._rocks.write(batch, partial(self.retained.stage, rows=retained_rows))
        else:
            self._rocks.write(batch)
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
            self._put_number(_APPLIED, applied)
            self._written = applied
        self._rocks.flush(wait)
        self._unflushed = 0

    def has_buffered(self) -> bool:
        """Whether something was applied that is not in the database yet."""
        return self._rocks.has_buffered()

    def is_buffer_sealed(self) -> bool:
        """Whether a reader has asked for a range of what is not in the database yet."""
        return self._rocks.is_buffer_sealed()

    def write_buffered(self) -> None:
        """Write it there: while groups come, that is done for many together."""
        self._rocks.write_buffered()

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

        `rest` is called now and then.
        """

        batch = Batch()
        batch.delete_range(b"", KEYS_END)
        batch.put(_SCHEMA, _NUMBER.pack(self._schema_version))
        self._rocks.write(batch)
        self._applied = self._written = 0
        self.retained.load()
        restoration = Restoration(self.retained, self.sessions)
        for rows in checkpoint.rows():
            batch = Batch()
            restoration.stage(batch, rows)
            self._rocks.write(batch)
            restoration.count(rows)
            if rest is not None:
                rest()
        batch = Batch()
        restoration.finish(batch)
        self._rocks.write(batch)
        self.history.begin(checkpoint.offset, checkpoint.timestamp_us)
        self._put_number(_APPLIED, checkpoint.offset - 1)
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

    def _put_number(self, key: bytes, number: int) -> None:
        batch = Batch()
        batch.put(key, _NUMBER.pack(number))
        self._rocks.write(batch)

    def _check_schema(self, directory: Path) -> None:
        found = self._number(_SCHEMA)
        if found > self._schema_version:
            raise NewerSchema(
                f"the state in {directory} has schema {found}, this EmberMQ knows schemas up to {self._schema_version}:"
                " use a newer EmberMQ, or make a new state from the log with `ember store rebuild`"
            )
        if found < self._schema_version:
            self._put_number(_SCHEMA, self._schema_version)
