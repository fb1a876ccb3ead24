"""Compression of large answers, for clients that accept gzip.

Owns: which answers are compressed: whole bodies of text, such as JSON and the files of the page. Streams are not: what
they have is to leave at once. It is done on a thread, where it leaves the interpreter to the event loop.
"""

import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import web

COMPRESSED_BYTES_MIN: Final = 2048
"""A smaller answer fits into two packets of the network as it is."""
LEVEL: Final = 4
"""A page of JSON has a tenth of its size then; the highest level would take three times as long for little more."""
GZIP: Final = 16 + zlib.MAX_WBITS
TYPES: Final = ("application/json", "text/", "image/svg+xml")


async def compressed(
    request: web.Request, response: web.Response, on_thread: Callable[[Callable[[], bytes]], Awaitable[bytes]]
) -> bytes | None:
    """Compress the body of an answer if that is worth it; returns the body, None if it has none."""
    body = response.body
    if not isinstance(body, bytes):
        return None
    if len(body) < COMPRESSED_BYTES_MIN or not response.content_type.startswith(TYPES):
        return body
    response.headers["Vary"] = "Accept-Encoding"
    if not _accepts_gzip(request.headers.get("Accept-Encoding", "")):
        return body
    body = await on_thread(partial(zlib.compress, body, LEVEL, GZIP))
    response.body = body
    response.headers["Content-Encoding"] = "gzip"
    if (etag := response.headers.get("ETag")) is not None:
        response.headers["ETag"] = f"W/{etag}"  # the same file in other bytes
    return body


def _accepts_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding has gzip, or everything, and not with the weight 0."""
    weights: dict[str, str] = {}
    for part in accepted.lower().split(","):
        name, _, parameter = part.partition(";")
        weights[name.strip()] = parameter.strip().removeprefix("q=") or "1"
    weight = weights.get("gzip", weights.get("*", "0"))
    return weight.strip("0.") != ""
