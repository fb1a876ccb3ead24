"""The topic index of a closed segment: which topics it has, and in which of its blocks (docs/log-format.md).

Owns: the file beside a segment, its making and its reading. The server makes it when it has closed a segment
(`indexer`), and a reader makes one that is missing.
Never: anything that the log depends on: without the file a query reads more, and nothing else changes.
"""

import os
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Final, final

from embermq.store.log.blocks import Block
from embermq.store.log.by_topic.index_file import Columns, from_file, to_file
from embermq.store.log.segments import TOPIC_INDEX_SUFFIX, log_path

TOPICS_MAX: Final = 100_000
"""A segment with more topics has an empty index: reading it would cost as much as reading the blocks."""

_NEXT_OFFSET: Final = b"next_offset"
_COMPLETE: Final = b"complete"


@final
class TopicIndex:
    """The topics of one segment, and the numbers of the blocks of each. Not complete if there are too many topics."""

    def __init__(self, columns: Columns, is_complete: bool) -> None:
        self.columns: Final = columns
        self.is_complete: Final = is_complete

    def __len__(self) -> int:
        return self.columns.rows

    def topic(self, number: int) -> bytes:
        ends = memoryview(self.columns.topic_ends).cast("i")
        return self.columns.topics[ends[number] : ends[number + 1]]

    def number_of(self, topic: bytes) -> int | None:
        """The number of a topic; None if the segment does not have it."""
        ends = memoryview(self.columns.topic_ends).cast("i")
        if not topic:
            return next(iter([number for number in range(len(self)) if ends[number] == ends[number + 1]]), None)
        at = self.columns.topics.find(topic)
        while at >= 0:
            number = bisect_left(ends, at)
            if number + 1 < len(self) and ends[number] == ends[number + 1]:  # the empty topic
                number += 1
            if number < len(self) and ends[number] == at and ends[number + 1] == at + len(topic):
                return number
            at = self.columns.topics.find(topic, at + 1)
        return None

    def blocks_of(self, chosen: Iterable[int]) -> list[int]:
        """The blocks with any of the topics of some numbers, in order."""
        ends = memoryview(self.columns.list_ends).cast("i")
        blocks = memoryview(self.columns.numbers).cast("i")
        found: set[int] = set()
        for number in chosen:
            found.update(blocks[ends[number] : ends[number + 1]])
        return sorted(found)


NO_TOPICS: Final = TopicIndex(Columns(0, bytes(4), b"", bytes(4), b""), True)


def topic_index_path(directory: Path, first_offset: int) -> Path:
    return log_path(directory, first_offset).with_suffix(TOPIC_INDEX_SUFFIX)


def read_topic_index(path: Path, next_offset: int) -> TopicIndex | None:
    """The index in a file; None if there is none, or it is not that of a segment that ends before this offset."""
    try:
        return parse_topic_index(path.read_bytes(), next_offset)
    except OSError:
        return None


def parse_topic_index(data: bytes, next_offset: int) -> TopicIndex | None:
    """As `read_topic_index`, of the bytes of such a file."""
    found = from_file(data)
    if found is None or found.metadata.get(_NEXT_OFFSET) != b"%d" % next_offset or _COMPLETE not in found.metadata:
        return None
    return TopicIndex(found.columns, found.metadata[_COMPLETE] == b"1")


@final
class TopicIndexBuilder:
    """Makes the index of a segment from its blocks."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max: Final = topics_max
        self._blocks: dict[bytes, list[int]] = {}
        self._count = 0
        self.is_complete = True

    def add(self, block: Block) -> None:
        """The next block."""
        if self.is_complete:
            known = self._blocks
            for topic in block.topics():
                numbers = known.get(topic)
                if numbers is None:
                    known[topic] = [self._count]
                else:
                    numbers.append(self._count)
            if len(known) > self._topics_max:
                self.is_complete = False
                self._blocks = {}
        self._count += 1

    def index(self) -> TopicIndex:
        topics = sorted(self._blocks)
        lists = [self._blocks[topic] for topic in topics]
        numbers = array("i")
        for blocks in lists:
            numbers.extend(blocks)
        columns = Columns(
            len(topics),
            _ends([len(topic) for topic in topics]),
            b"".join(topics),
            _ends([len(blocks) for blocks in lists]),
            numbers.tobytes(),
        )
        return TopicIndex(columns, self.is_complete)


def write_topic_index(path: Path, index: TopicIndex, next_offset: int) -> None:
    """Keep an index for the next query. A directory that this user may not write to is no error."""
    data = to_file(index.columns, {_NEXT_OFFSET: b"%d" % next_offset, _COMPLETE: b"1" if index.is_complete else b"0"})
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    with suppress(OSError):
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)  # it has no checksum: what a power cut has torn would leave out blocks
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
    for other in path.parent.glob(f"*{TOPIC_INDEX_SUFFIX}"):  # of segments that were trimmed meanwhile
        if not other.with_suffix(".log").exists():
            with suppress(OSError):
                other.unlink()


def _ends(lengths: list[int]) -> bytes:
    return array("i", accumulate(lengths, initial=0)).tobytes()
