"""The retained set as of an instant that only the archive has: a checkpoint, and the records after it up to then.

Owns: a state that is made for this, in a directory of its own, and kept for the next question about the instant.
Never: the state of the server. For one thread at a time.
"""

import shutil
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, final
from uuid import uuid4

from embermq.archive.archive import Archive, missing, open_archive
from embermq.archive.cache import CACHE_BYTES, SegmentCache
from embermq.archive.errors import ArchiveError
from embermq.archive.manifest import ArchivedCheckpoint, ArchivedSegment
from embermq.store.errors import HistoryTrimmed
from embermq.store.interface import Retained
from embermq.store.log.blocks import Block
from embermq.store.log.checkpoint import Checkpoint
from embermq.store.log.errors import BadBlock, LogCorrupt
from embermq.store.log.reader import LogReader
from embermq.store.log.records import Group
from embermq.store.log.segments import FIRST_OFFSET, log_path
from embermq.store.replay import MERGED_RECORDS, merged
from embermq.store.state.state import State

PIECE_MESSAGES: Final = 500
PIECE_BYTES: Final = 1 << 20
PIECE_SEEKS: Final = 2_000
STATES_MAX: Final = 4
"""For so many instants the state is kept: a long answer asks for its pieces one by one, beside others."""
CACHE: Final = "archive-cache"
"""The directory in the data directory for what was fetched."""


@final
class ArchivedPast:
    """The past of a server's retained set, from its archive. Nothing is opened before the first question."""

    __slots__ = ("_address", "_cache_bytes", "_directory", "_states")

    def __init__(self, address: str, directory: Path, cache_bytes: int = CACHE_BYTES) -> None:
        """`directory` is for what is fetched and made; it may be shared with other processes."""
        self._address: Final = address
        self._directory: Final = directory
        self._cache_bytes: Final = cache_bytes
        self._states: Final[OrderedDict[int, tuple[State, Path]]] = OrderedDict()  # by instant, least used first

    def pieces(self, topic_filter: str, instant_us: int, after_topic_name: str = "") -> Iterator[list[Retained]]:
        """The retained messages of an instant that a filter matches, in the store's order; a piece may be empty.

        HistoryTrimmed if the archive does not reach back to the instant, ArchiveError if it cannot be read.
        """
        while True:
            retained = self._at(instant_us).retained
            piece = retained.piece(topic_filter, after_topic_name, PIECE_MESSAGES, PIECE_BYTES, PIECE_SEEKS, instant_us)
            yield piece.found
            if piece.done:
                return
            after_topic_name = piece.after_topic_name

    def message(self, topic_name: str, instant_us: int) -> Retained | None:
        """The retained message of one topic at an instant."""
        return self._at(instant_us).retained.get(topic_name, instant_us)

    def close(self) -> None:
        """Remove what was made. The fetched segments stay for others."""
        while self._states:
            self._remove_one()

    def _remove_one(self) -> None:
        _, (state, place) = self._states.popitem(last=False)
        state.close()
        shutil.rmtree(place, ignore_errors=True)

    def _at(self, instant_us: int) -> State:
        known = self._states.get(instant_us)
        if known is not None:
            self._states.move_to_end(instant_us)
            return known[0]
        while len(self._states) >= STATES_MAX:
            self._remove_one()
        archive = open_archive(self._address)
        checkpoint, segments = _needed(archive, instant_us)
        place = self._directory / f"as-of-{uuid4().hex}"
        place.mkdir(mode=0o700, parents=True)
        (place / "state").mkdir(mode=0o700)
        state = State(place / "state")
        try:
            if checkpoint is not None:
                archive.fetch_checkpoint(checkpoint, place)
                state.restore(Checkpoint(place, checkpoint.offset))
            cache = SegmentCache(archive, self._directory / "segments", self._cache_bytes)
            for segment in segments:
                groups = _groups(cache.log_of(segment), segment, state.applied_offset() + 1, instant_us)
                for group in merged(groups, MERGED_RECORDS):
                    state.apply(group)
        except BaseException:
            state.close()
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._states[instant_us] = state, place
        return state


def _needed(archive: Archive, instant_us: int) -> tuple[ArchivedCheckpoint | None, list[ArchivedSegment]]:
    """The newest checkpoint that is not after an instant, and the segments from there to the instant."""
    segments = [one for one in archive.segments() if one.first_timestamp_us <= instant_us]
    checkpoints = [one for one in archive.checkpoints() if one.timestamp_us <= instant_us]
    checkpoint = checkpoints[-1] if checkpoints else None
    begins = FIRST_OFFSET if checkpoint is None else checkpoint.offset
    needed = [one for one in segments if one.next_offset > begins]
    lost = [(one.lost_from, one.first_offset) for one in archive.generations()]
    if checkpoint is None and (not needed or needed[0].first_offset > FIRST_OFFSET):
        first = min((one.timestamp_us for one in archive.checkpoints()), default=instant_us + 1)
        raise HistoryTrimmed(instant_us, first)
    gaps = [gap for gap in missing(needed) if gap not in lost]
    if needed and needed[0].first_offset > begins and (begins, needed[0].first_offset) not in lost:
        gaps.insert(0, (begins, needed[0].first_offset))
    if gaps:
        raise ArchiveError(
            f"the archive {archive.shown} lacks offsets {gaps[0][0]} to {gaps[0][1] - 1}, without which the retained"
            " set of this instant is not known"
        )
    return checkpoint, needed


def _groups(directory: Path, segment: ArchivedSegment, start: int, instant_us: int) -> Iterator[Group]:
    """The groups of a fetched segment from an offset on, up to and including an instant."""
    path = log_path(directory, segment.first_offset)
    entries = LogReader(directory).entries(segment.first_offset, segment.blocks)
    with open(path, "rb") as file:
        for position, size, first, records in zip(
            entries["position"].tolist(),
            entries["total_bytes"].tolist(),
            entries["first_offset"].tolist(),
            entries["records"].tolist(),
            strict=True,
        ):
            if first + records <= start:
                continue
            file.seek(position)
            try:
                group = Block(file.read(size)).group(max(start, first))
            except BadBlock as error:
                raise LogCorrupt(str(path), position, str(error)) from None
            kept = bisect_right(group.timestamps_us, instant_us)
            if kept < len(group):
                if kept:
                    yield _beginning(group, kept)
                return
            yield group


def _beginning(group: Group, records: int) -> Group:
    cut = Group(group.first_offset)
    for row in range(records):
        cut.append(
            group.timestamps_us[row],
            group.kinds[row],
            group.flags[row],
            group.topics[row],
            group.payloads[row],
            group.client_ids[row],
            group.properties[row],
        )
    return cut


def remove_leftovers(directory: Path) -> None:
    """Remove what a process that was killed has left in a directory that no other uses."""
    with suppress(FileNotFoundError):
        for found in (*directory.glob("as-of-*"), *directory.glob("segments/*.new")):
            shutil.rmtree(found, ignore_errors=True)
