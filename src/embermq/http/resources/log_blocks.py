"""Blocks and checkpoints of the log as bytes, for readers that do not have its disk.

Owns: how much one answer has. It is read again from where it ended, by offset or by position, and what it carries has
its own checksums (docs/log-format.md).
"""

import os
from functools import partial
from pathlib import Path
from struct import Struct
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from pydantic import Field

from embermq.http.fields import Model, Nothing, Offset, Size
from embermq.http.operation import VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.resources.file_range import OCTETS, send_file_range
from embermq.http.resources.log import directory_of
from embermq.store.log.errors import LogTrimmed

if TYPE_CHECKING:
    from embermq.history.joined import JoinedLog
    from embermq.store.log.entries import Entries

ANSWER_BYTES: Final = 4 << 20
ANSWER_BYTES_MAX: Final = 16 << 20
ARCHIVED_BYTES_MAX: Final = 1 << 20
"""The same of what only the archive has."""
BLOCKS_MAX: Final = 16_384
COUNT: Final = Struct("<Q")


class BlocksQuery(Model):
    from_offset: Annotated[Offset, Field(description="The first record to read; its block comes whole.")]
    to_offset: Annotated[Offset, Field(description="Records from this offset on are not needed.")]
    bytes_max: Annotated[Size, Field(description="The most bytes, 16 MiB at most; one block may have more.")] = (
        ANSWER_BYTES
    )


class CheckpointQuery(Model):
    offset: Annotated[Offset, Field(description="The offset of the checkpoint.")]
    position: Annotated[Size, Field(description="From this byte on.")] = 0
    bytes_max: Annotated[Size, Field(description="The most bytes, 16 MiB at most.")] = ANSWER_BYTES


async def blocks(call: Call[BlocksQuery, Nothing]) -> Answer:
    directory = directory_of(call)
    query = call.query
    if query.to_offset <= query.from_offset:
        raise HttpRefusal(422, "to_offset: expected an offset above from_offset")
    archived = call.service.archived
    try:
        try:
            found = await call.service.on_thread(partial(_of_log, directory, query))
        except LogTrimmed:
            if archived is None:
                raise
            found = await archived.on_thread(partial(_of_archive, archived.log, directory, query))
    except ValueError as error:
        raise HttpRefusal(422, str(error)) from None
    try:
        head = COUNT.pack(len(found.entries)) + found.entries.data
        return await send_file_range(call, head, found.descriptor, found.position, found.end)
    finally:
        os.close(found.descriptor)


class FoundBlocks(NamedTuple):
    """Index entries, and the open file that has their blocks between two positions."""

    entries: "Entries"
    descriptor: int
    position: int
    end: int


def _of_log(directory: Path, query: BlocksQuery) -> FoundBlocks:
    from embermq.store.log.reader import LogReader

    size = min(query.bytes_max, ANSWER_BYTES_MAX)
    found = LogReader(directory).block_range(query.from_offset, query.to_offset, size, BLOCKS_MAX)
    return FoundBlocks(found.entries, found.descriptor, found.position, found.end)


def _of_archive(log: "JoinedLog", directory: Path, query: BlocksQuery) -> FoundBlocks:
    """Blocks that only the archive has, in a file without a name."""
    run = log.archived_blocks(query.from_offset, query.to_offset, min(query.bytes_max, ARCHIVED_BYTES_MAX))
    if run is None:
        return _of_log(directory, query)
    with TemporaryFile() as file:
        file.write(run.data)
        file.flush()
        return FoundBlocks(run.entries, os.dup(file.fileno()), 0, len(run.data))


async def checkpoint(call: Call[CheckpointQuery, Nothing]) -> Answer:
    directory = directory_of(call)
    query = call.query
    try:
        descriptor, size_bytes = await call.service.on_thread(partial(_open_checkpoint, directory, query.offset))
    except FileNotFoundError:
        raise HttpRefusal(410, f"there is no checkpoint of offset {query.offset} any more") from None
    try:
        position = min(query.position, size_bytes)
        end = min(size_bytes, position + min(query.bytes_max, ANSWER_BYTES_MAX))
        return await send_file_range(call, b"", descriptor, position, end)
    finally:
        os.close(descriptor)


def _open_checkpoint(directory: Path, offset: int) -> tuple[int, int]:
    from embermq.store.log.checkpoint import checkpoint_path

    descriptor = os.open(checkpoint_path(directory, offset), os.O_RDONLY)
    return descriptor, os.fstat(descriptor).st_size


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/v1/log/blocks",
        role=VIEWER,
        summary=(
            "Blocks of the log as they are on disk, of one segment: their number as a 64-bit integer, their index "
            "entries, the blocks. Ask again with the offset after the last one."
        ),
        handle=blocks,
        query=BlocksQuery,
        body=Nothing,
        media=OCTETS,
        statuses=(409, 410, 422),
    ),
    Operation(
        method="GET",
        path="/api/v1/log/checkpoint",
        role=VIEWER,
        summary="A checkpoint of the log as it is on disk, from a position on. Ask again with the position after it.",
        handle=checkpoint,
        query=CheckpointQuery,
        body=Nothing,
        media=OCTETS,
        statuses=(409, 410),
    ),
)
