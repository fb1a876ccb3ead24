"""The retained set as of instants that only the archive has: a checkpoint, and the records after it up to then.

Owns: states that are made for this, in a directory of their own. Each has the history from one checkpoint on, as far as
it was asked for, so that it answers for all instants of that time.
Never: the state of the server. For one thread at a time.
"""

import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import sleep
from typing import Final, final
from uuid import uuid4

from embermq.archive.archive import Archive, missing, open_archive
from embermq.archive.errors import ArchiveError
from embermq.archive.manifest import ArchivedCheckpoint, ArchivedSegment
from embermq.history.fetched_records import ATTEMPTS, FetchedRecords
from embermq.history.segment_cache import CACHE_BYTES, SegmentCache
from embermq.store.engines.replay import merged
from embermq.store.engines.retention import DISK_PART, disk_bytes
from embermq.store.errors import HistoryTrimmed, NotWanted
from embermq.store.history.pieces import HistoryReads
from embermq.store.history.trimmed import TrimmedRetained
from embermq.store.interface import Retained, RetainedPiece
from embermq.store.log.blocks import Block
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.errors import BadBlock, LogCorrupt
from embermq.store.log.identity import read_identity
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import FIRST_OFFSET, log_path
from embermq.store.rows import Group
from embermq.store.state.changes import OFFSET_MAX
from embermq.store.state.rocks import open_database
from embermq.store.state.state import State, StateSettings
from embermq.store.state.topic_sources import ComparedTopics, HistoryTopics
from embermq.store.topic_tree import Moments, TopicSource

PIECE_TOPICS: Final = 128
PIECE_BYTES: Final = 1 << 20
STATES_BYTES: Final = 4 << 30
"""So large are the states that are kept together, each for the time from one checkpoint to the next."""
STATE_BYTES_MIN: Final = 512 << 20
"""A smaller one counts as this: it takes memory too."""
APPLIED_RECORDS: Final = 200
REST_S: Final = 0.0005
"""So many records are applied at once, and so long is rested then: clients of the broker have their turn."""
FREE_BYTES: Final = 512 << 20
"""So much of the disk is left free, or a tenth of it if that is less: with less the server trims its log."""
CACHE: Final = "archive-cache"
"""The directory in the data directory for what was fetched."""

_SMALL: Final = StateSettings(open_database=partial(open_database, block_cache_bytes=4 << 20, memtables_max=2))


def rest(is_wanted: Callable[[], bool]) -> None:
    """Let other threads have the interpreter: one that takes it again at once can keep them waiting for long."""
    if not is_wanted():
        raise NotWanted
    sleep(REST_S)


def always() -> bool:
    """Somebody waits for the answer until it comes."""
    return True


@final
class _Interval:
    """The history from a checkpoint on up to `until_us`, and where the records are that it names."""

    def __init__(self, state: State, place: Path, records: FetchedRecords) -> None:
        self.state: Final = state
        self.place: Final = place
        self.records: Final = records
        self.until_us = -1

    def size_bytes(self) -> int:
        size_bytes = 0
        for path in self.place.rglob("*"):
            with suppress(FileNotFoundError):  # RocksDB has merged it with others
                size_bytes += path.stat().st_size
        return max(STATE_BYTES_MIN, size_bytes)

    def knows(self, instant_us: int) -> bool:
        return self.state.history.begins_us() <= instant_us <= self.until_us


@final
class ArchivedPast(TrimmedRetained):
    """The past of a server's retained set, from its archive. Nothing is opened before the first question.

    A question may take as long as making a state does. HistoryTrimmed if the archive does not reach back to the
    instant, ArchiveError if it cannot be read.
    """

    def __init__(
        self,
        address: str,
        directory: Path,
        cache_bytes: int = CACHE_BYTES,
        log_directory: Path | None = None,
        states_bytes: int = STATES_BYTES,
    ) -> None:
        """`directory` is for what is fetched and made; it may be shared with other processes.

        `log_directory` says which log it must be the archive of.
        """
        self._address: Final = address
        self._directory: Final = directory
        self._cache_bytes: Final = cache_bytes
        self._log_directory: Final = log_directory
        self._states_bytes: Final = states_bytes
        self._archive: Archive | None = None
        self._intervals: Final[OrderedDict[int, _Interval]] = OrderedDict()  # by first offset, least used first
        self._begins_us = 0
        self._first_us = 0

    def piece(
        self,
        topic_filter: str,
        instant_us: int,
        after_topic_name: str,
        limit: int,
        bytes_max: int,
        is_wanted: Callable[[], bool] = always,
    ) -> RetainedPiece:
        interval = self._at(instant_us, is_wanted)
        return interval.state.history.piece(
            interval.records, topic_filter, instant_us, OFFSET_MAX, after_topic_name, limit, bytes_max
        )

    def pieces(
        self, topic_filter: str, instant_us: int, after_topic_name: str = "", is_wanted: Callable[[], bool] = always
    ) -> Iterator[list[Retained]]:
        """The retained messages of an instant that a filter matches, in the store's order; a piece may be empty."""
        while True:
            piece = self.piece(topic_filter, instant_us, after_topic_name, PIECE_TOPICS, PIECE_BYTES, is_wanted)
            yield piece.found()
            if piece.done:
                return
            after_topic_name = piece.after_topic_name

    def message(self, topic_name: str, instant_us: int, is_wanted: Callable[[], bool] = always) -> Retained | None:
        """The retained message of one topic at an instant."""
        interval = self._at(instant_us, is_wanted)
        found = interval.state.history.as_of(interval.records, topic_name, "", 1, instant_us)
        return found[0] if found else None

    def topics(self, moments: Moments, local: HistoryReads, is_wanted: Callable[[], bool] = always) -> TopicSource:
        """The topics with a message at one or two instants, of which `local` may know one. It is of use until the next
        question."""
        after = self._topics(moments.as_of_us, local, is_wanted)
        return (
            ComparedTopics(after, self._topics(moments.compare_us, local, is_wanted)) if moments.compare_us else after
        )

    def _topics(self, instant_us: int, local: HistoryReads, is_wanted: Callable[[], bool]) -> TopicSource:
        moments = Moments(instant_us)
        try:
            return local.topics(moments)
        except HistoryTrimmed:
            return HistoryTopics(self._at(instant_us, is_wanted).state.history, moments, instant_us, True)

    def is_made(self, instant_us: int) -> bool:
        return any(interval.knows(instant_us) for interval in self._intervals.values())

    def begins_us(self) -> int:
        return self._begins_us

    def first_us(self) -> int:
        """As `begins_us`, but the instant of the first record if it has all."""
        return self._first_us

    def close(self) -> None:
        """Remove what was made. The fetched segments stay for others."""
        while self._intervals:
            self._remove(next(iter(self._intervals)))

    def _remove(self, first_offset: int) -> None:
        interval = self._intervals.pop(first_offset)
        try:
            interval.state.close()
        finally:
            shutil.rmtree(interval.place, ignore_errors=True)

    def _at(self, instant_us: int, is_wanted: Callable[[], bool]) -> _Interval:
        for first_offset, interval in self._intervals.items():
            if interval.knows(instant_us):
                self._intervals.move_to_end(first_offset)
                return interval
        archive = self._opened()
        checkpoint, segments, known_us = self._needed(archive, instant_us)
        first_offset = 0 if checkpoint is None else checkpoint.offset
        if first_offset not in self._intervals:
            self._make_room(max(STATE_BYTES_MIN, 0 if checkpoint is None else 3 * checkpoint.size_bytes), 0)
            self._intervals[first_offset] = self._made(archive, checkpoint, is_wanted)
        self._intervals.move_to_end(first_offset)
        interval = self._intervals[first_offset]
        try:
            interval.records.use(segments)
            for segment in segments:
                self._apply(interval, segment, instant_us, is_wanted)
            interval.state.flush(wait=True)  # a state that is only read takes little memory then
        except (ArchiveError, NotWanted):
            raise  # what was applied is right, and the next question goes on from there
        except BaseException:
            self._remove(first_offset)
            raise
        interval.until_us = max(interval.until_us, known_us)
        self._make_room(0, 1)
        return interval

    def _make_room(self, needed_bytes: int, kept: int) -> None:
        """Remove the states that were used the longest ago, until what is left leaves room; some are kept anyway."""
        while len(self._intervals) > kept:
            if needed_bytes + sum(each.size_bytes() for each in self._intervals.values()) <= self._states_bytes:
                break
            self._remove(next(iter(self._intervals)))

    def _made(
        self, archive: Archive, checkpoint: ArchivedCheckpoint | None, is_wanted: Callable[[], bool]
    ) -> _Interval:
        """The state of a checkpoint, or an empty one."""
        self._check_space(0 if checkpoint is None else 3 * checkpoint.size_bytes)
        place = self._directory / f"as-of-{uuid4().hex}"
        place.mkdir(mode=0o700, parents=True)
        try:
            (place / "state").mkdir(mode=0o700)
            state = State(place / "state", settings=_SMALL)
            try:
                if checkpoint is not None:
                    fetched = archive.fetch_checkpoint(checkpoint, place)
                    state.restore(Checkpoint(place, checkpoint.offset), partial(rest, is_wanted))
                    fetched.unlink()
            except BaseException:
                state.close()
                raise
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        cache = SegmentCache(archive, self._directory / "segments", self._cache_bytes)
        return _Interval(state, place, FetchedRecords(cache))

    def _apply(
        self, interval: _Interval, segment: ArchivedSegment, instant_us: int, is_wanted: Callable[[], bool]
    ) -> None:
        """Apply the records of a segment up to an instant that were not applied before."""
        state = interval.state
        for attempt in range(ATTEMPTS):
            if segment.next_offset <= state.applied_offset() + 1:
                return
            self._check_space(2 * segment.size_bytes)
            try:
                directory = interval.records.fetched(segment)
                groups = _groups(directory, segment, state.applied_offset() + 1, instant_us)
                for group in merged(groups, APPLIED_RECORDS):
                    state.apply(group)
                    if state.wants_flush():
                        state.flush(wait=False)
                    rest(is_wanted)
            except FileNotFoundError:  # another process has removed it
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def _check_space(self, needed_bytes: int) -> None:
        """ArchiveError if a state would take space that the server itself needs."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        total_bytes, free_bytes = disk_bytes(self._directory)
        if free_bytes < needed_bytes + min(FREE_BYTES, 2 * total_bytes // DISK_PART):
            raise ArchiveError(
                f"{self._directory} has no space for what is fetched of the archive: {free_bytes} bytes of its disk are"
                " free"
            )

    def _opened(self) -> Archive:
        if self._archive is None:
            archive = open_archive(self._address, for_clients=True)
            identity = None if self._log_directory is None else read_identity(self._log_directory)
            if self._log_directory is not None and (identity is None or identity.log_id != archive.log_id):
                raise ArchiveError(f"{archive.shown} is the archive of another log")
            self._archive = archive
        return self._archive

    def _needed(
        self, archive: Archive, instant_us: int
    ) -> tuple[ArchivedCheckpoint | None, list[ArchivedSegment], int]:
        """The newest checkpoint that is not after an instant, the segments from there to the instant, and the instant
        up to which nothing more can be archived later."""
        all_segments = archive.segments()
        all_checkpoints = archive.checkpoints()
        segments = [one for one in all_segments if one.first_timestamp_us <= instant_us]
        checkpoints = [one for one in all_checkpoints if one.timestamp_us <= instant_us]
        checkpoint = checkpoints[-1] if checkpoints else None
        begins = FIRST_OFFSET if checkpoint is None else checkpoint.offset
        needed = [one for one in segments if one.next_offset > begins]
        lost = [(one.lost_from, one.first_offset) for one in archive.generations()]
        has_all = bool(all_segments) and all_segments[0].first_offset == FIRST_OFFSET
        oldest_us = min((one.timestamp_us for one in all_checkpoints), default=0)
        self._first_us = all_segments[0].first_timestamp_us if has_all else oldest_us
        if checkpoint is None and not has_all:
            # A directory that is not mounted is empty too: that is an error.
            open_archive(self._address, for_clients=True)
            self._begins_us = oldest_us
            raise HistoryTrimmed(instant_us, oldest_us or instant_us + 1)
        gaps = [gap for gap in missing(needed) if gap not in lost]
        if needed and needed[0].first_offset > begins and (begins, needed[0].first_offset) not in lost:
            gaps.insert(0, (begins, needed[0].first_offset))
        if gaps:
            raise ArchiveError(
                f"the archive {archive.shown} lacks offsets {gaps[0][0]} to {gaps[0][1] - 1}, without which the"
                " retained set of this instant is not known"
            )
        ends_us = all_segments[-1].last_timestamp_us if all_segments else instant_us
        return checkpoint, needed, min(instant_us, ends_us - 1)


def _groups(directory: Path, segment: ArchivedSegment, start: int, instant_us: int) -> Iterator[Group]:
    """The groups of a fetched segment from an offset on, up to and including an instant."""
    path = log_path(directory, segment.first_offset)
    entries = LogReader(directory).entries(segment.first_offset, segment.blocks)
    with open(path, "rb") as file:
        for number in range(max(0, entries.block_of(start)), len(entries)):
            position = entries.position(number)
            file.seek(position)
            try:
                group = Block(file.read(entries.total_bytes(number))).group(max(start, entries.first_offset(number)))
            except BadBlock as error:
                raise LogCorrupt(str(path), position, str(error)) from None
            if group.rows[-1].timestamp_us > instant_us:
                kept = [row for row in group.rows if row.timestamp_us <= instant_us]
                if kept:
                    yield Group(group.first_offset, kept)
                return
            yield group


def remove_leftovers(directory: Path) -> None:
    """Remove the states that a server has left that was killed. No other server may use the directory."""
    for found in directory.glob("as-of-*"):
        shutil.rmtree(found, ignore_errors=True)
