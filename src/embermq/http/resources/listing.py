"""Lists of models as streams: one line each, in slices between which clients are served."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from aiohttp import web

from embermq.http.fields import Model, json_text
from embermq.http.operation import Call
from embermq.http.streaming import Slices, Stream
from embermq.http.unread import stall_s as stall_s

T = TypeVar("T")


async def stream_models(
    call: Call[Any, Any], found: Iterable[T], model_of: Callable[[T], Model | None]
) -> web.StreamResponse:
    """A line for each item that still has a model when its turn comes."""
    slices = Slices()
    async with Stream(call.request, call.service.places, stall_s(call.request)) as stream:
        for item in found:
            model = model_of(item)
            if model is not None:
                await stream.line(json_text(model.model_dump(exclude_none=True)))
            await slices.rest()
        return await stream.complete()
