"""The topic index of a closed segment: which topics it has, and in which of its blocks (docs/log-format.md).

Owns: the file beside a segment, its making and its reading. The server makes it when it has closed a segment
(`indexer`), and a reader makes one that is missing.
Never: anything that the log depends on: without the file a query reads more, and nothing else changes.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embermq.store.log.segments import TOPIC_INDEX_SUFFIX, log_path

TOPICS_MAX: Final = 100_000
"""A segment with more topics has an empty index: reading it would cost as much as reading the blocks."""

_SCHEMA: Final = pa.schema([("topic", pa.string()), ("blocks", pa.list_(pa.int32()))])
_NEXT_OFFSET: Final = b"next_offset"
_COMPLETE: Final = b"complete"


@final
class TopicIndex:
    """The topics of one segment, and the numbers of the blocks of each. Not complete if there are too many topics."""

    __slots__ = ("topics", "is_complete", "_blocks")

    def __init__(self, table: pa.Table) -> None:
        table = table.combine_chunks()
        self.topics: Final[pa.Array] = _only_chunk(table["topic"])
        self._blocks: Final[pa.Array] = _only_chunk(table["blocks"])
        self.is_complete: Final = table.schema.metadata[_COMPLETE] == b"1"

    def blocks_of(self, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
        """The blocks with any of the chosen topics, in order."""
        wanted = self._blocks.take(pa.array(np.flatnonzero(chosen)))
        return np.unique(np.asarray(wanted.flatten()))


def topic_index_path(directory: Path, first_offset: int) -> Path:
    return log_path(directory, first_offset).with_suffix(TOPIC_INDEX_SUFFIX)


def read_topic_index(path: Path, next_offset: int) -> TopicIndex | None:
    """The index in a file; None if there is none, or it is not that of a segment that ends before this offset."""
    try:
        with pa.memory_map(str(path)) as file:
            return _parsed(file, next_offset)
    except OSError:
        return None


def parse_topic_index(data: bytes, next_offset: int) -> TopicIndex | None:
    """As `read_topic_index`, of the bytes of such a file."""
    return _parsed(pa.BufferReader(data), next_offset)


def _parsed(file: pa.NativeFile, next_offset: int) -> TopicIndex | None:
    try:
        table = pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid):
        return None
    metadata = table.schema.metadata or {}
    fits = table.schema.equals(_SCHEMA) and metadata.get(_NEXT_OFFSET) == str(next_offset).encode()
    return TopicIndex(table) if fits and _COMPLETE in metadata else None


@final
class TopicIndexBuilder:
    """Makes the index of a segment from the topics of its records. Keeps of each batch only what is new in it.

    Arrays with an entry for each record of a segment would be cleared by the system when they are made, and given back
    to it soon after: that took most of the time.
    """

    __slots__ = ("_ends", "_names", "_pairs", "_rows")

    def __init__(self, records: NDArray[np.int64]) -> None:
        """`records` is how many each block has."""
        self._ends: Final = np.cumsum(records)
        self._rows = 0
        self._names: Final[list[pa.Array]] = []  # for each batch: the topics that it has
        self._pairs: Final[list[NDArray[np.int64]]] = []  # for each batch: the number of a topic there, and a block

    def add(self, topics: pa.Array) -> None:
        """The topics of the next records."""
        encoded = topics.dictionary_encode()
        rows = np.arange(self._rows, self._rows + len(topics))
        self._rows += len(topics)
        blocks = np.searchsorted(self._ends, rows, "right")
        self._names.append(encoded.dictionary)
        self._pairs.append(np.unique(np.asarray(encoded.indices).astype(np.int64) * self._blocks() + blocks))

    def table(self, next_offset: int, topics_max: int = TOPICS_MAX) -> pa.Table:
        """The index as a table."""
        encoded = _only_chunk(pa.chunked_array(self._names, pa.string()).dictionary_encode().combine_chunks())
        names, codes = encoded.dictionary, np.asarray(encoded.indices).astype(np.int64)
        complete = len(names) <= topics_max
        if not complete:
            names = names[:0]
        blocks = self._blocks()
        found = [np.empty(0, np.int64)]
        first = 0
        for of_batch, pairs in zip(self._names, self._pairs, strict=True):
            if complete:
                found.append(codes[first + pairs // blocks] * blocks + pairs % blocks)
            first += len(of_batch)
        pairs = np.unique(np.concatenate(found))
        bounds = np.searchsorted(pairs, np.arange(len(names) + 1, dtype=np.int64) * blocks).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(bounds), pa.array((pairs % blocks).astype(np.int32)))
        metadata = {_NEXT_OFFSET: str(next_offset).encode(), _COMPLETE: b"1" if complete else b"0"}
        return pa.Table.from_arrays([names, lists], schema=_SCHEMA.with_metadata(metadata))

    def _blocks(self) -> int:
        return max(1, len(self._ends))


def build_topic_index(
    topics: Iterator[pa.Array], records: NDArray[np.int64], next_offset: int, topics_max: int = TOPICS_MAX
) -> pa.Table:
    """The index as a table. `topics` are those of all records, in order; `records` is how many each block has."""
    builder = TopicIndexBuilder(records)
    for batch in topics:
        builder.add(batch)
    return builder.table(next_offset, topics_max)


def write_topic_index(path: Path, table: pa.Table) -> None:
    """Keep an index for the next query. A directory that this user may not write to is no error."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.new")
    with suppress(OSError):
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with open(descriptor, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
    for other in path.parent.glob(f"*{TOPIC_INDEX_SUFFIX}"):  # of segments that were trimmed meanwhile
        if not other.with_suffix(".log").exists():
            with suppress(OSError):
                other.unlink()


def _only_chunk(array: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(array, pa.Array):
        return array
    return array.chunk(0) if array.num_chunks else pa.array([], array.type)
