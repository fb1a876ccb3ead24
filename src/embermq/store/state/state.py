"""The state: what the log says now, kept by key (docs/architecture.md, decision 5).

Owns: the database, its schema version, the offset up to which the log has been applied, and applying a group.
Never: the log. It is always behind the log and never ahead of it; what a crash takes is applied again from there.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, final

from rocksdict import WriteBatch

from embermq.store.budgets import RetainedBudget
from embermq.store.errors import NewerSchema, StoreError
from embermq.store.log.records import RETAIN_FLAG, Group, Kind
from embermq.store.state.history import Change, changes_as_of, forget, past_changes
from embermq.store.state.retained import RetainedState
from embermq.store.state.retained_keys import topic_key
from embermq.store.state.rocks import FLUSH_BYTES, Rocks
from embermq.store.state.sessions import SessionState

SCHEMA_VERSION: Final = 1
FLUSH_RECORDS: Final = 100_000
"""So many applied records are flushed at the latest: a start applies no more than these again."""
GROUP_WEIGHT: Final = 10
"""Reading a group costs a start about as much as so many records."""

_SCHEMA: Final = b"\x00schema"
_APPLIED: Final = b"\x00applied"
_HISTORY_BEGINS: Final = b"\x00history"
_NUMBER: Final = Struct("<Q")
_PUBLISH: Final = int(Kind.PUBLISH)  # comparing with a member of an enum costs three times as much
_RETAINED_REMOVED: Final = int(Kind.RETAINED_REMOVED)
_HISTORY_ONLY: Final = frozenset((int(Kind.CONNECTED), int(Kind.RETAINED_COPY)))


@final
class State:
    """The state of one directory. One thread applies; another may ask."""

    __slots__ = ("_applied", "_history_begins_us", "_rocks", "_unflushed", "retained", "sessions")

    def __init__(self, directory: Path, budgets: Sequence[RetainedBudget] = ()) -> None:
        self._rocks: Final = Rocks(directory)
        try:
            self._check_schema(directory)
            self.retained: Final = RetainedState(self._rocks, budgets)
            self.sessions: Final = SessionState(self._rocks)
            self._load()
        except BaseException:
            self._rocks.close()
            raise

    def _load(self) -> None:
        self._applied = self._number(_APPLIED)
        self._history_begins_us = self._number(_HISTORY_BEGINS)
        self._unflushed = 0
        self.retained.load()

    def reopen(self, catch_up: Callable[["State"], None]) -> None:
        """Begin again after a failed write, once the disk has room; `catch_up` applies what was lost on the way.

        Readers wait until that is done. Raises like the failed write as long as it is of no use.
        """
        if not self._rocks.has_room():
            raise StoreError("the state cannot be written: no space left on its disk")
        with self._rocks.lock:
            self._rocks.reopen()
            self._load()
            catch_up(self)

    def applied_offset(self) -> int:
        """The newest offset whose record is in here; 0 if none is."""
        return self._applied

    def apply(self, group: Group) -> None:
        """All of a group, or nothing. Records that were applied before are passed over."""
        skip = max(0, self._applied + 1 - group.first_offset)
        if skip >= len(group):
            return
        retained_rows: list[int] = []
        session_rows: list[int] = []
        kinds, flags = group.kinds, group.flags
        for row in range(skip, len(group)):
            kind = kinds[row]
            if kind == _PUBLISH:
                if flags[row] & RETAIN_FLAG:
                    retained_rows.append(row)
            elif kind == _RETAINED_REMOVED:
                retained_rows.append(row)
            elif kind not in _HISTORY_ONLY:
                session_rows.append(row)
        applied = group.first_offset + len(group) - 1

        def fill(batch: WriteBatch) -> None:
            if retained_rows:
                self.retained.stage(batch, group, retained_rows)
            if session_rows:
                self.sessions.stage(batch, group, session_rows)
            batch.put(_APPLIED, _NUMBER.pack(applied))

        self._rocks.write(fill)
        if retained_rows:
            self.retained.settle()
        self._unflushed += applied - self._applied + GROUP_WEIGHT
        self._applied = applied

    def wants_flush(self) -> bool:
        """Whether enough was applied since the last flush."""
        return self._unflushed >= FLUSH_RECORDS or self._rocks.memtable_bytes() >= FLUSH_BYTES

    def flush(self, wait: bool) -> None:
        """Make what was applied last. The log must hold all of it durably before."""
        self._rocks.flush(wait)
        self._unflushed = 0

    def owed_offset(self) -> int | None:
        """The lowest log offset that any session is still owed; None if nobody is owed anything."""
        return min((offset for offset in self.sessions.owed_offsets() if offset is not None), default=None)

    # -- the past ------------------------------------------------------------------------------------------------

    def history_begins_us(self) -> int:
        """From which instant on the past is known; 0 if nothing of it was trimmed."""
        return self._history_begins_us

    def changes_as_of(self, topic_filter: str, after_topic_name: str, limit: int, instant_us: int) -> list[Change]:
        """For up to `limit` topics that had a retained message at an instant, the change that made it so."""
        return changes_as_of(self._rocks, topic_filter, topic_key(after_topic_name), limit, instant_us)

    def past_changes(self, topic_filter: str, instant_us: int) -> Iterator[Change | None]:
        """For each topic in turn, the change that was its last at an instant; None if nothing was retained then."""
        return past_changes(self._rocks, topic_filter, b"", instant_us)

    def begin_history(self, first_offset: int, instant_us: int) -> None:
        """Before an offset the log is not there to be referred to, and before an instant the past is not known."""
        self.retained.history_floor = max(self.retained.history_floor, first_offset)
        self._rocks.write(lambda batch: batch.put(_HISTORY_BEGINS, _NUMBER.pack(instant_us)))
        self._history_begins_us = instant_us

    def forget(self, groups: Iterable[Group], before_offset: int, last_timestamp_us: int) -> Iterator[None]:
        """Let go of the log before an offset, whose last record has this timestamp; in pieces, then flushed."""
        # First the word that it is gone, then the deed: a crash between them must not leave half a past.
        self.begin_history(before_offset, last_timestamp_us)
        yield from forget(self._rocks, groups, before_offset)
        self.flush(wait=True)

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
        if found > SCHEMA_VERSION:
            raise NewerSchema(
                f"the state in {directory} has schema {found}, this EmberMQ knows schemas up to {SCHEMA_VERSION}:"
                " use a newer EmberMQ, or make it anew from the log with `ember store rebuild`"
            )
        if not found:
            self._rocks.write(lambda batch: batch.put(_SCHEMA, _NUMBER.pack(SCHEMA_VERSION)))
