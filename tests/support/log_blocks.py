"""Blocks of a log over HTTP, and on disk."""

from pathlib import Path

import aiohttp

from embermq.http.resources.log_blocks import COUNT
from embermq.store.log.entries import Entries, first_mismatch
from embermq.store.log.reader import LogReader
from embermq.store.segment import ENTRY_BYTES


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
        entries = Entries(data[COUNT.size : COUNT.size + count * ENTRY_BYTES])
        blocks = data[COUNT.size + count * ENTRY_BYTES :]
        assert entries.first_offset(0) <= start < entries.next_offset(0)
        assert len(blocks) == sum(entries.total_bytes(number) for number in range(count))
        assert first_mismatch(blocks, entries, True) is None
        start = entries.next_offset()
        gathered += blocks
        answers += 1
    return gathered, answers


def blocks_on_disk(data: Path) -> bytes:
    return b"".join(info.path.read_bytes()[32:] for info in LogReader(data / "log").segments())
