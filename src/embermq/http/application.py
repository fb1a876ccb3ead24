"""The application: routes requests to operations, and turns every outcome into a status code and JSON.

Owns: the order of checks (source, login, role, room, request; only then a body is read), and the sentence of refusals.
"""

from collections.abc import Sequence
from traceback import clear_frames
from typing import Any, Final, final

from aiohttp import web

from embermq.http.compression import compressed
from embermq.http.connection import connection_of, name_server
from embermq.http.fields import Model, json_text
from embermq.http.login import Actor, Login
from embermq.http.operation import OPERATOR, PUBLIC, READER, VIEWER, Answer, Operation
from embermq.http.paging import json_response
from embermq.http.refusal import INTERNAL_ERROR, SENTENCES, HttpRefusal
from embermq.http.resources.page_files import PageFiles
from embermq.http.service import Service
from embermq.http.streaming import PIECE_BYTES, HeadAnswered, send_in_pieces
from embermq.http.unread import stall_s
from embermq.store.errors import HistoryTrimmed, NotWanted
from embermq.store.interface import StoreError
from embermq.store.log.errors import LogTrimmed

REQUESTS_MAX: Final = 128
"""How many requests of one listener are answered at a time, streams included."""
BODY_OVERHEAD_BYTES: Final = 1024 * 1024
"""What a request may hold beside the largest payload: a topic name may be six times as long as JSON escapes."""
_ANYBODY: Final = Actor("anybody", PUBLIC, "")
ROLES: Final = {VIEWER: "viewer", READER: "reader", OPERATOR: "operator"}


@final
class Application:
    """The operations as one listener offers them."""

    __slots__ = ("_login", "_requests", "_requests_max", "_service", "web")

    def __init__(
        self,
        service: Service,
        login: Login,
        operations: Sequence[Operation[Any, Any]],
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self._service: Final = service
        self._login: Final = login
        self._requests = 0
        self._requests_max: Final = requests_max
        body_bytes_max = service.server.limits.packet_bytes_max * 4 // 3 + BODY_OVERHEAD_BYTES
        self.web: Final = web.Application(middlewares=[self._answer], client_max_size=body_bytes_max)
        self.web.on_response_prepare.append(_begin)
        for operation in operations:
            for method in ("GET", "HEAD") if operation.method == "GET" else (operation.method,):
                self.web.router.add_route(
                    method, operation.path, self._handler(operation), expect_handler=_expect_nothing
                )
        page_files = PageFiles()
        self.web.router.add_get("/", page_files.get)
        self.web.router.add_get("/page/{name:.+}", page_files.get)

    def _handler(self, operation: Operation[Any, Any]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            if operation.method == "GET":  # a change goes on: it may be half done
                connection_of(request).end_with_client()
            if operation.role == PUBLIC:
                answer = await operation.run(self._service, request, _ANYBODY)
            else:
                actor = await self._login.actor(request)
                connection_of(request).log_in()
                if actor.role < operation.role:
                    raise HttpRefusal(403, f"this needs the role {ROLES[operation.role]}")
                answer = await self._run_in_place(operation, request, actor)
            return (
                json_response(json_text(answer.model_dump(exclude_none=True))) if isinstance(answer, Model) else answer
            )

        return handle

    async def _run_in_place(self, operation: Operation[Any, Any], request: web.Request, actor: Actor) -> Answer:
        """Answer a request, if there are not too many already; some places are left for operators."""
        places = self._requests_max if actor.role == OPERATOR else self._requests_max * 7 // 8
        if self._requests >= places:
            raise HttpRefusal(503, "too many requests at once, try again", {"Retry-After": "1"})
        self._requests += 1
        try:
            return await operation.run(self._service, request, actor)
        except HeadAnswered as answered:
            return answered.response
        finally:
            self._requests -= 1

    @web.middleware
    async def _answer(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Every outcome as an answer."""
        try:
            self._login.check_source(request)
            return await self._send(request, await handler(request))
        except HttpRefusal as refusal:
            refused = _refused(refusal.status, str(refusal), refusal.headers)
        except web.HTTPException as error:
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            refused = _refused(error.status, SENTENCES.get(error.status, error.reason), headers)
        except TimeoutError:
            refused = _refused(408, SENTENCES[408], {})
        except (HistoryTrimmed, LogTrimmed) as error:
            refused = _refused(410, str(error), {})
        except NotWanted:
            refused = _refused(503, "nobody waits for the answer", {})  # and nobody gets this
        except StoreError as error:  # also that of an archive which cannot be read
            refused = _refused(503, str(error), {})
        except Exception as error:
            if not _is_gone(request, error):
                self._service.server.bug(error)
            refused = _refused(500, INTERNAL_ERROR, {})
            _forget_frames(error)
        connection = connection_of(request)
        if connection.has_begun:  # what has begun cannot become another answer; the library does not send it
            connection.abort()
        return refused

    async def _send(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """What is large is sent here, at the pace of its reader; the library sends the rest at once."""
        if not isinstance(response, web.Response):
            return response
        body = await compressed(request, response, self._service.on_thread)
        if body is None or len(body) <= PIECE_BYTES or request.method == "HEAD":
            return response
        return await send_in_pieces(request, response, body, self._service.unread, stall_s(request))


async def _begin(request: web.Request, response: web.StreamResponse) -> None:
    connection_of(request).begin_answer()
    name_server(response)


async def _expect_nothing(request: web.Request) -> None:
    """100 Continue is sent when a body is wanted (`HttpConnection.want_body`), not before the login."""
    return


def _forget_frames(error: BaseException | None) -> None:
    """Free what the frames of an error hold, such as a large answer. The library's own frames refer to the error by a
    future, so this would stay in memory until the garbage collector comes."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


def _is_gone(request: web.Request, error: Exception) -> bool:
    """Whether a request failed because its client has left, or was sent away: no error of the server."""
    transport = request.transport
    return isinstance(error, OSError) and (transport is None or transport.is_closing())


def _refused(status: int, sentence: str, headers: dict[str, str]) -> web.Response:
    response = json_response(json_text({"error": sentence}), status)
    response.headers.update(headers)
    return response
