"""Documents: the metrics for Prometheus, and what the interface is, for programs."""

from typing import Final

from aiohttp import web

from embermq.http.fields import Nothing, json_text
from embermq.http.operation import PUBLIC, VIEWER, Answer, Call, Operation
from embermq.http.paging import json_response
from embermq.http.resources.pipeline.progress import facts_of, progress_in

METRICS_TYPE: Final = "text/plain"


async def metrics(call: Call[Nothing, Nothing]) -> Answer:
    from embermq.http.resources.metrics import CONTENT_TYPE, metrics_text

    service = call.service
    progress = await service.on_thread(lambda: progress_in(service.lake))
    text = await metrics_text(service, facts_of(progress, service.server.store.next_offset()))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


async def openapi(call: Call[Nothing, Nothing]) -> Answer:
    from embermq.http.catalog import OPERATIONS as ALL
    from embermq.http.openapi import document

    return json_response(await call.service.on_thread(lambda: json_text(document(ALL))))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/metrics",
        role=VIEWER,
        summary="Metrics in the text format of Prometheus.",
        handle=metrics,
        query=Nothing,
        body=Nothing,
        media=METRICS_TYPE,
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        role=PUBLIC,
        summary="This interface as an OpenAPI document.",
        handle=openapi,
        query=Nothing,
        body=Nothing,
        media="application/json",
    ),
)
