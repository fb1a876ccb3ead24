"""Operations: what can be asked, as a table row each: method, path, role, the models of query, body and answer.

Owns: reading a request by its models, and that an operation is only for callers who see all unless it says
otherwise. The application routes by this table, and the OpenAPI document is made from it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from aiohttp import web
from pydantic import ValidationError

from embermq.http.connection import connection_of
from embermq.http.fields import Model, Nothing
from embermq.http.refusal import SENTENCES, HttpRefusal
from embermq.http.view import NOT_ALL, View
from embermq.transport.rate_limited_log import shown_name

if TYPE_CHECKING:
    from embermq.http.login import Actor
    from embermq.http.service import Service

audit: Final = logging.getLogger("embermq.audit")

PUBLIC: Final = 0
VIEWER: Final = 1
READER: Final = 2
OPERATOR: Final = 3
"""Each role may do what those before it may. A reader may also register how far it has read the log."""

BODY_TIMEOUT_S: Final = 60.0

Q = TypeVar("Q", bound=Model)
B = TypeVar("B", bound=Model)


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, B]):
    """A request that was read: who asks, and what. `view` is what the caller may see."""

    view: View
    request: web.Request
    actor: "Actor"
    query: Q
    body: B

    @property
    def service(self) -> "Service":
        """The whole service; refused to a caller who does not see all."""
        return self.view.service

    def audit(self, change: str, target: str, outcome: str) -> None:
        """Log a change that the actor has made, or tried to make."""
        audit.info("%s (%s) %s %s: %s", self.actor.name, self.actor.address, change, shown_name(target), outcome)


Answer = Model | web.StreamResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[Q, B]):
    """One method of one path.

    `answer` is the model of a JSON answer; `lines` that of a line where the answer can be asked for as NDJSON; `media`
    names the type of an answer that is neither. `statuses` are the refusals beside those that every operation has.
    `is_narrowed`: it is for users with rights on some topics as well, and takes what it shows from the view.
    """

    method: str
    path: str
    role: int
    summary: str
    handle: Callable[[Call[Q, B]], Awaitable[Answer]]
    query: type[Q]
    body: type[B]
    answer: Any = None
    lines: Any = None
    media: str = ""
    statuses: tuple[int, ...] = ()
    is_narrowed: bool = False

    async def run(self, service: "Service", request: web.Request, actor: "Actor") -> Answer:
        """Read the request, and answer it."""
        view = View(service, actor.identity)
        if not self.is_narrowed and not view.sees_all:
            raise HttpRefusal(403, NOT_ALL)
        query = read_query(self.query, request)
        body = await read_body(self.body, request)
        call = Call(view, request, actor, query, body)
        key = request.headers.get("Idempotency-Key")
        if key is None or self.method == "GET":
            return await self.handle(call)
        work = partial(self.handle, call)
        login = "user" if actor.identity is not None else "token"
        return await service.repeats.answer((actor.login_name, login, self.path, key), await request.read(), work)


def read_query(model: type[Q], request: web.Request) -> Q:
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name in given:
            raise HttpRefusal(400, f"{name} is given twice")
        given[name] = value
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise HttpRefusal(400, _sentence(error)) from None


async def read_body(model: type[B], request: web.Request) -> B:
    if issubclass(model, Nothing):
        return model()
    if request.content_type != "application/json":
        raise HttpRefusal(415, "expected a body with Content-Type: application/json")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HttpRefusal(415, "expected a body without Content-Encoding", {"Accept-Encoding": "identity"})
    if "Transfer-Encoding" in request.headers:  # its size is not known before it has come
        raise HttpRefusal(411, "expected a body with Content-Length")
    size_bytes = request.content_length or 0
    if size_bytes > request.client_max_size:
        raise HttpRefusal(413, SENTENCES[413])
    async with asyncio.timeout(BODY_TIMEOUT_S):
        if size_bytes:
            await connection_of(request).want_body(request, size_bytes)
        data = await request.read()
    try:
        return model.model_validate_json(data, strict=True)
    except ValidationError as error:
        raise HttpRefusal(400, _sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """What was expected of the first wrong field. The value itself is not repeated: it may be of any size."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])[:100]
    if first["type"] == "json_invalid":
        return "expected a JSON object as the body"
    if first["type"] == "extra_forbidden":
        return f"there is no parameter {name!a}"
    if first["type"] == "missing":
        return f"{name} is missing"
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    return f"{name}: {message}" if name else message
