"""Server-sent events, as a reader gets them."""

import asyncio
import json
from typing import Any

import aiohttp


async def event(response: aiohttp.ClientResponse) -> tuple[str, Any]:
    """The next event, without comments."""
    kind = ""
    while True:
        line = (await asyncio.wait_for(response.content.readline(), 60)).decode()
        assert line, "the stream has ended"
        if line.startswith("event: "):
            kind = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            return kind, json.loads(line.removeprefix("data: "))
