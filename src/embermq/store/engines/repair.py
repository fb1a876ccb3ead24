"""Repair: a data directory that was damaged starts again, with all that is known of it.

Owns: what a repair keeps, what it sets aside, and an order of steps in which a crash leaves a directory that is refused
as before, and can be repaired again.
Never: deleting. What the server no longer uses moves into a folder of the data directory.

State, lakes and bridges rely on a log without gaps. So a log that is damaged in the middle goes on with what is behind
the newest damage, as if it had been trimmed to there, and what is before it moves aside too:
1. The state applies every good record that it lacks. It knows what damaged records have said, if it had applied them.
2. What sessions are owed from before the damage is appended to the log again; what was damaged of it is dropped.
3. A checkpoint at the log's end says what the state is, and the state is made from it: nothing refers to what is gone.
4. The files before the damage move aside, oldest first: in between the log is one that was trimmed to less.
Where only the log's end is lost, everything before it stays. The offsets of the lost records are left out, as after a
restore, and the state is made from the log.
"""

import os
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final
from uuid import uuid4

from embermq.protocol.message_expiry import message_expires_us, with_remaining_expiry
from embermq.store.engines.directory import DataDirectory
from embermq.store.engines.opening import JournalSettings, open_log, open_state
from embermq.store.engines.shared_log import PLACE
from embermq.store.engines.survey import Gap, Survey
from embermq.store.errors import StoreError
from embermq.store.log.blocks import block_of
from embermq.store.log.checkpoint import Checkpoint, CheckpointWriter, checkpoint_path, undamaged_checkpoint
from embermq.store.log.errors import NotALog
from embermq.store.log.identity import FILE, LogIdentity, goes_on_at, log_identity, write_identity
from embermq.store.log.segments import (
    FIRST_OFFSET,
    TOPIC_INDEX_SUFFIX,
    encode_segment_header,
    index_path,
    log_path,
    sync_directory,
)
from embermq.store.records import SESSION_SEQUENCE
from embermq.store.rows import Group, Kind, LogRow
from embermq.store.state.rocks import open_database
from embermq.store.state.state import State

FOLDER: Final = "set-aside"
"""In the data directory: a folder for each repair, with `log` and `state` as they were."""
COPIES_AT_ONCE: Final = 500
COPIED_BYTES: Final = 256 << 10

_FLAGS: Final = 7  # of an entry of a queue: QoS and RETAIN
_EXPIRED: Final = b"\x02\x00\x00\x00\x00"
"""As properties: a message that nobody may be sent any more. It takes the place of one that is lost."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was wrong, and what a repair has made of it, or will make.

    The log begins at `begins`, and at `begun` before. `unknown`: those of the gaps whose records the state has not
    applied either. `lacks_before`: what was before this offset neither the state nor a checkpoint has; 0: one of them
    has. `copied`, `dropped`: what sessions are owed of the records that have left the log. `aside`: the folder with
    what was set aside; None: nothing was.
    """

    findings: list[str]
    gaps: list[Gap]
    begins: int
    begun: int
    aside: Path | None = None
    unknown: tuple[Gap, ...] = ()
    is_state_new: bool = False
    lacks_before: int = 0
    copied: int = 0
    dropped: int = 0


Agree = Callable[[Repaired], None]
"""Is called with what will be done before anything is changed, if something is lost. It raises to end the repair."""


def repair(directory: Path, settings: JournalSettings, agree: Agree, is_archived: bool = False) -> Repaired:
    """Repair the data directory of a stopped server. StoreBusy if one runs; StoreError if it cannot be repaired.

    `is_archived`: its closed segments are in an archive, perhaps as they were before the damage.
    """
    if not (directory / "log").is_dir():
        raise NotALog(str(directory / "log"), "there is no such directory")
    if (directory / PLACE).exists():
        raise StoreError(
            f"{directory} is a node's of a cluster: move it away and start the node, which gets the log from the others"
        )
    data = DataDirectory(directory)
    try:
        return _Repair(data, settings, Survey(data.log, is_archived)).run(agree)
    except OSError as error:
        raise StoreError(f"{directory} is not repaired: {error.strerror or error} ({error.filename})") from error
    finally:
        data.close()


@final
class _Repair:
    """One repair of a directory that is locked."""

    def __init__(self, data: DataDirectory, settings: JournalSettings, found: Survey) -> None:
        self._data: Final = data
        self._settings: Final = settings
        self._found: Final = found
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
        self._aside: Final = data.path / FOLDER / stamp
        self._begins = found.begins
        self._unknown: tuple[Gap, ...] = ()
        self._is_state_new = False
        self._lacks_before = 0
        self._copied = self._dropped = 0

    def run(self, agree: Agree) -> Repaired:
        found = self._found
        broken = _state_damage(self._data.state)
        if broken:
            found.findings.append(f"{self._data.state}: {broken}")
        applied = 0 if broken else self._applied()
        end = max(found.claimed, applied + 1, goes_on_at(found.lost, found.end))
        is_end_lost = end > found.end
        if is_end_lost:
            if not found.claimed:
                found.findings.append(f"{self._data.log}: offsets {found.end} to {end - 1} are missing at its end")
            found.gaps.append(Gap(found.end, end, found.last_timestamp_us(), 0))
        is_end_only = is_end_lost and len(found.gaps) == 1
        known_from = 1 if is_end_only else applied + 1
        if known_from < found.begins and not any(found.begins <= offset for offset in found.good_checkpoints):
            found.findings.append(f"{self._data.log}: no good checkpoint has what was before offset {found.begins}")
            self._lacks_before = found.begins
        if not found.findings:
            return self._report()
        self._begins = found.begins if is_end_only else found.whole_from
        self._is_state_new = bool(broken) or is_end_only
        if found.gaps or self._lacks_before:
            agree(self._report())
        self._set_aside_what_is_made_again(bool(broken))
        if is_end_only:
            self._go_on_behind_the_end(end)
        elif found.gaps:
            self._go_on_behind_the_damage(end)
        self._open_as_a_server()
        return self._report()

    def _report(self) -> Repaired:
        return Repaired(
            self._found.findings,
            self._found.gaps,
            self._begins,
            self._found.begins,
            self._aside if self._aside.exists() else None,
            self._unknown,
            self._is_state_new,
            self._lacks_before,
            self._copied,
            self._dropped,
        )

    def _applied(self) -> int:
        with _opened_state(self._data, self._settings) as state:
            return state.applied_offset()

    def _set_aside_what_is_made_again(self, with_state: bool) -> None:
        found = self._found
        for first_offset in found.bad_indexes:
            self._set_aside(index_path(found.directory, first_offset))
        for offset in found.bad_checkpoints:
            self._set_aside(checkpoint_path(found.directory, offset))
        if found.bad_identity:
            self._set_aside(found.directory / FILE)
        if with_state:
            self._set_aside_state()
        for first_offset in found.bad_headers:
            if first_offset >= self._begins:
                good = (one.read() for one in found.stretches if int(one.path.stem) == first_offset)
                self._write_segment(first_offset, good)

    def _go_on_behind_the_end(self, end: int) -> None:
        """Leave the offsets of the lost records out, as a restore does, and begin a segment behind them.

        The identity comes first: it tells another repair, after a crash, what is left to do.
        """
        identity = log_identity(self._data.log)
        lost = (self._found.end, end)
        if lost not in identity.lost:
            generation, token = identity.generation + 1, uuid4().hex
            write_identity(self._data.log, LogIdentity(identity.log_id, generation, token, (*identity.lost, lost)))
        self._set_aside_state()
        self._write_segment(end, [])
        self._unknown = tuple(self._found.gaps)

    def _go_on_behind_the_damage(self, end: int) -> None:
        found, directory = self._found, self._data.log
        now_us = found.last_timestamp_us()
        with _opened_state(self._data, self._settings) as state:
            self._bring_up(state)
            owed = _Owed(state, self._begins, now_us)
        self._keep_part(self._begins)
        if owed:
            self._write_segment(end, owed.copies(found, end))
            end = owed.next_offset
        self._copied, self._dropped = owed.copied, owed.dropped
        self._write_segment(end, [])
        with _opened_state(self._data, self._settings) as state:
            rows = (written for row in state.view().rows(now_us) for written in owed.with_copies(row))
            _write_checkpoint(directory, end, now_us, rows)
            del rows  # it reads the state
        self._set_aside_state()
        with _opened_state(self._data, self._settings) as state:
            state.restore(Checkpoint(directory, end))
        self._set_aside_log_before(self._begins)

    def _bring_up(self, state: State) -> None:
        """Apply what the state lacks, as far as it is good: the newest checkpoint first if that knows more."""
        found, next_offset = self._found, state.applied_offset() + 1
        newest = max(found.good_checkpoints, default=0)
        if newest > next_offset and any(gap.first_offset < newest and gap.end > next_offset for gap in found.gaps):
            state.restore(Checkpoint(found.directory, newest))
            next_offset = newest
        self._unknown = tuple(gap for gap in found.gaps if gap.end > next_offset)
        for group in found.groups(next_offset):
            state.apply(group)
            if state.wants_flush():
                state.flush(wait=False)

    def _keep_part(self, begins: int) -> None:
        """Make a segment of the good blocks behind the damage, if it begins within one."""
        for stretch in self._found.stretches:
            if stretch.first_offset == begins and int(stretch.path.stem) != begins:
                self._write_segment(begins, [stretch.read()])

    def _write_segment(self, first_offset: int, blocks: Iterable[bytes | bytearray]) -> None:
        """Write a segment, durably; one that is there is set aside. Opening the log makes its index."""
        path = log_path(self._data.log, first_offset)
        unfinished = path.with_suffix(".log.new")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(encode_segment_header(first_offset))
            for data in blocks:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.link(path, self._folder("log") / path.name)
        unfinished.replace(path)
        sync_directory(self._data.log)

    def _set_aside_log_before(self, offset: int) -> None:
        found = self._found
        for checkpoint in found.good_checkpoints:
            if checkpoint < offset:
                self._set_aside(checkpoint_path(found.directory, checkpoint))
        for first_offset in found.segments:
            if first_offset < offset:
                path = log_path(found.directory, first_offset)
                for suffix in (TOPIC_INDEX_SUFFIX, ".idx", ".log"):  # without the last one, the others are deleted
                    self._set_aside(path.with_suffix(suffix))
        sync_directory(self._folder("log"))
        sync_directory(found.directory)

    def _set_aside(self, path: Path) -> None:
        if path.exists():
            path.chmod(0o600)
            path.rename(self._folder("log") / path.name)

    def _set_aside_state(self) -> None:
        """Set the state aside, and make an empty directory for the next one."""
        aside = self._folder("") / "state"
        if aside.exists():  # then this one was made by this repair
            shutil.rmtree(self._data.state)
        else:
            self._data.keep_private()
            self._data.state.rename(aside)
            sync_directory(aside.parent)
        self._data.state.mkdir(mode=0o700)
        sync_directory(self._data.path)

    def _folder(self, name: str) -> Path:
        """A folder of what is set aside, for its owner alone."""
        folder = self._aside / name
        for made in (self._aside.parent, self._aside, folder):
            made.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _open_as_a_server(self) -> None:
        """Open the log and the state as a start does, which makes what is missing of both.

        A trimmed log without a good checkpoint gets one at its end.
        """
        log = open_log(self._data, self._settings)
        try:
            state = open_state(self._data, log, self._settings, None, accept_loss=True)
            try:
                first, end = log.first_offset, log.next_offset
                if first > FIRST_OFFSET and undamaged_checkpoint(log.directory, first, end) is None:
                    log.close_segment()
                    now_us = log.last_timestamp_us
                    _write_checkpoint(log.directory, end, now_us, state.view().rows(now_us))
            finally:
                state.close()
        finally:
            log.close()


@final
class _Owed:
    """What sessions are owed of the records before an offset, which leave the log."""

    def __init__(self, state: State, before: int, now_us: int) -> None:
        self._before: Final = before
        self._now_us: Final = now_us
        self._entries: Final[list[tuple[int, int, int]]] = []  # session, sequence, offset
        self._holes: Final[dict[tuple[int, int], int]] = {}  # how many entries are lost before a session's sequence
        self._copies: Final[dict[int, int]] = {}  # where the record of an offset is again
        self._sent_max: Final[dict[int, int]] = {}  # by session, if one of those that were sent is lost
        self._lost_at = 0  # the record that stands for all that are lost
        self.next_offset = 0
        self.copied = 0
        self.dropped = 0
        acknowledged: dict[int, int] = {}
        behind: dict[int, int] = {}  # the sequence that follows in the queue of a session
        for row in state.view().rows(now_us):
            if row.kind == Kind.ACKNOWLEDGED:
                session_id, sequence = SESSION_SEQUENCE.unpack_from(row.payload)
                acknowledged[session_id] = sequence
            elif row.kind == Kind.QUEUED:
                session_id, first, entries = _queued(row)
                expected = max(behind.get(session_id, 0), acknowledged.get(session_id, 0) + 1)
                if first > expected:
                    self._holes[session_id, first] = first - expected
                behind[session_id] = first + len(entries)
                for sequence, entry in enumerate(entries, first):
                    if entry >> 3 < before and sequence > acknowledged.get(session_id, 0):
                        self._entries.append((session_id, sequence, entry >> 3))

    def __bool__(self) -> bool:
        return bool(self._entries or self._holes)

    def copies(self, found: Survey, first_offset: int) -> Iterator[bytearray]:
        """Blocks with the good records again, from an offset on, and one that stands for those that are lost."""
        wanted = {offset for _, _, offset in self._entries}
        group = Group(first_offset)
        for read in found.groups(min(wanted, default=self._before)):
            if read.first_offset >= self._before:
                break
            for row in read.rows:
                if row.offset in wanted:
                    self._copies[row.offset] = self._add(group, row)
            if len(group) >= COPIES_AT_ONCE or group.size_bytes >= COPIED_BYTES:
                yield block_of(group)
                group = Group(group.next_offset)
        if len(self._copies) < len(wanted) or self._holes:
            self._lost_at = group.append(self._now_us, Kind.RETAINED_COPY, 0, b"lost", b"", b"", _EXPIRED)
        if len(group):
            yield block_of(group)
        self.next_offset = group.next_offset
        self.copied = len(self._copies)
        for session_id, sequence, offset in self._entries:
            if offset not in self._copies:
                self._drop(session_id, sequence, 1)
        for (session_id, behind), count in self._holes.items():
            self._drop(session_id, behind - count, count)

    def _drop(self, session_id: int, sequence: int, count: int) -> None:
        self.dropped += count
        self._sent_max[session_id] = min(sequence - 1, self._sent_max.get(session_id, sequence - 1))

    def _add(self, group: Group, row: LogRow) -> int:
        expires_us = message_expires_us(row.properties, row.timestamp_us)
        properties = with_remaining_expiry(row.properties, expires_us, self._now_us)
        return group.append(self._now_us, Kind.RETAINED_COPY, row.flags, row.topic, row.payload, b"", properties)

    def with_copies(self, row: LogRow) -> Iterator[LogRow]:
        """A row of the checkpoint, or two, that name no record which has left the log.

        What comes behind a lost message counts as not sent yet: the lost one must not be sent again with DUP.
        """
        if row.kind == Kind.QUEUED:
            session_id, first, entries = _queued(row)
            if count := self._holes.get((session_id, first), 0):
                lost = array("Q", [self._lost_at << 3 | 1]) * count
                yield _with_payload(row, SESSION_SEQUENCE.pack(session_id, first - count) + lost.tobytes(), b"")
            moved = array("Q", entries)
            for place, entry in enumerate(entries):
                if entry >> 3 < self._before:
                    moved[place] = self._copies.get(entry >> 3, self._lost_at or entry >> 3) << 3 | entry & _FLAGS
            yield _with_payload(row, SESSION_SEQUENCE.pack(session_id, first) + moved.tobytes(), row.properties)
        elif row.kind == Kind.DISCONNECTED:
            session_id, sent = SESSION_SEQUENCE.unpack_from(row.payload)
            sent = min(sent, self._sent_max.get(session_id, sent))
            payload = SESSION_SEQUENCE.pack(session_id, sent) + row.payload[SESSION_SEQUENCE.size :]
            yield _with_payload(row, payload, row.properties)
        else:
            yield row


def _queued(row: LogRow) -> tuple[int, int, memoryview]:
    """The session, the first sequence and the entries of a QUEUED record."""
    session_id, first = SESSION_SEQUENCE.unpack_from(row.payload)
    return session_id, first, memoryview(row.payload)[SESSION_SEQUENCE.size :].cast("Q")


def _with_payload(row: LogRow, payload: bytes, properties: bytes) -> LogRow:
    return LogRow(row.offset, row.timestamp_us, row.kind, row.flags, row.topic, payload, row.client_id, properties)


def _write_checkpoint(directory: Path, offset: int, now_us: int, rows: Iterable[LogRow]) -> None:
    writer = CheckpointWriter(directory, offset, now_us)
    try:
        for row in rows:
            writer.add(row)
        writer.finish()
    finally:
        writer.abandon()


@contextmanager
def _opened_state(data: DataDirectory, settings: JournalSettings) -> Iterator[State]:
    state = State(data.state, settings.budgets, settings.state)
    try:
        yield state
    finally:
        state.close()


def _state_damage(directory: Path) -> str:
    """Why the state cannot be used; empty if all of it can be read. Each of its blocks has a checksum of RocksDB's."""
    if any(directory.iterdir()) and not (directory / "CURRENT").exists():
        return "its file CURRENT is missing"
    try:
        database = open_database(directory)
    except Exception as error:  # rocksdict raises nothing more special
        return str(error)
    try:
        keys = database.iter()
        keys.seek_to_first()
        while keys.valid():
            keys.next()
        keys.status()
        del keys
    except Exception as error:
        return str(error)
    finally:
        database.close()
    return ""
