"""Pages: a part of a list, in the order of names, chosen without sorting all of them at once."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeVar

from aiohttp import web

from embermq.http.fields import NDJSON, json_text
from embermq.http.streaming import Slices

SLICE_ITEMS: Final = 1_000

T = TypeVar("T")


async def page_of(
    found: Iterable[T | None], name_of: Callable[[T], str], after: str, limit: int
) -> tuple[list[T], str | None]:
    """The `limit` items with the lowest names above `after`, and the name to go on after; None at the end.

    What is None in `found` is left out.
    """
    slices = Slices()
    best: list[tuple[str, int, T]] = []
    items = iter(found)
    number = 0
    while piece := list(islice(items, SLICE_ITEMS)):
        for item in piece:
            if item is not None and (name := name_of(item)) > after:
                number += 1  # no two items are compared
                best.append((name, number, item))
        if len(best) > limit + 1:
            best.sort()
            del best[limit + 1 :]
        await slices.rest()
    best.sort()
    return [item for _, _, item in best[:limit]], best[limit - 1][0] if len(best) > limit else None


def json_page(lines: Iterable[str], following: str | None) -> web.Response:
    """A page of items that are JSON already."""
    text = f'{{"items":[{",".join(lines)}]' + (f',"next":{json_text(following)}}}' if following is not None else "}")
    return json_response(text)


def json_response(text: str, status: int = 200) -> web.Response:
    return web.Response(
        body=text.encode(),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"},
    )


def wants_lines(request: web.Request) -> bool:
    """Whether the whole list is asked for, a line each."""
    return NDJSON in request.headers.get("Accept", "")
