"""Blocks of a log over HTTP, and on disk."""

from pathlib import Path

import aiohttp
import numpy as np

from embermq.http.resources.log_blocks import COUNT
from embermq.store.log.reader import LogReader
from embermq.store.log.segments import ENTRY_BYTES, INDEX_DTYPE, first_mismatch


async def bytes_of(session: aiohttp.ClientSession, url: str, **query: int) -> bytes:
    async with session.get(url, params=query) as response:
        assert response.status == 200, await response.text()
        return await response.read()


async def all_blocks(session: aiohttp.ClientSession, url: str, start: int, end: int, **query: int) -> tuple[bytes, int]:
    """All blocks of a range, one answer after the other, each checked; and how many answers there were."""
    gathered, answers = b"", 0
    while start < end:
        data = await bytes_of(session, f"{url}/api/v1/log/blocks", from_offset=start, to_offset=end, **query)
        (count,) = COUNT.unpack_from(data)
        entries = np.frombuffer(data, INDEX_DTYPE, count, COUNT.size)
        blocks = data[COUNT.size + count * ENTRY_BYTES :]
        assert int(entries["first_offset"][0]) <= start < int(entries["first_offset"][0] + entries["records"][0])
        assert len(blocks) == int(entries["total_bytes"].sum())
        assert first_mismatch(blocks, entries, True) is None
        start = int(entries["first_offset"][-1] + entries["records"][-1])
        gathered += blocks
        answers += 1
    return gathered, answers


def blocks_on_disk(data: Path) -> bytes:
    return b"".join(info.path.read_bytes()[32:] for info in LogReader(data / "log").segments())
