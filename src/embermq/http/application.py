"""The application: routes requests to operations, and turns every outcome into a status code and JSON.

Owns: the order of checks (source, room, role, request), the audit line of every change, and the sentence of refusals.
"""

from collections.abc import Sequence
from typing import Any, Final, final

from aiohttp import web

from embermq.http.fields import Model, json_text
from embermq.http.login import Login
from embermq.http.operation import OPERATOR, PUBLIC, READER, VIEWER, Operation
from embermq.http.paging import json_response
from embermq.http.refusal import SENTENCES, HttpRefusal
from embermq.http.resources.page_files import PageFiles
from embermq.http.service import Service
from embermq.store.interface import StoreError

REQUESTS_MAX: Final = 128
"""How many requests of one listener are answered at a time, streams included."""
BODY_OVERHEAD_BYTES: Final = 1024 * 1024
"""What a request may hold beside the largest payload: a topic name may be six times as long as JSON escapes."""
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
        for operation in operations:
            self.web.router.add_route(operation.method, operation.path, self._handler(operation))
        page_files = PageFiles()
        self.web.router.add_get("/", page_files.get)
        self.web.router.add_get("/page/{name:.+}", page_files.get)

    def _handler(self, operation: Operation[Any, Any]) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            actor = await self._login.actor(request) if operation.role != PUBLIC else _ANYBODY
            if actor.role < operation.role:
                raise HttpRefusal(403, f"this needs the role {ROLES[operation.role]}")
            answer = await operation.run(self._service, request, actor)
            return (
                json_response(json_text(answer.model_dump(exclude_none=True))) if isinstance(answer, Model) else answer
            )

        return handle

    @web.middleware
    async def _answer(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Every outcome as an answer."""
        if self._requests >= self._requests_max:
            return _refused(503, "too many requests at once, try again", {"Retry-After": "1"})
        self._requests += 1
        try:
            self._login.check_source(request)
            response: web.StreamResponse = await handler(request)
            return response
        except HttpRefusal as refusal:
            return _refused(refusal.status, str(refusal), refusal.headers)
        except web.HTTPException as error:
            headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return _refused(error.status, SENTENCES.get(error.status, error.reason), headers)
        except TimeoutError:
            return _refused(408, SENTENCES[408], {})
        except StoreError as error:
            return _refused(503, str(error), {})
        except ConnectionError:
            raise  # the reader is gone
        except Exception as error:
            self._service.server.bug(error)
            return _refused(500, "internal error, the server's log has the details", {})
        finally:
            self._requests -= 1


def _refused(status: int, sentence: str, headers: dict[str, str]) -> web.Response:
    response = json_response(json_text({"error": sentence}), status)
    response.headers.update(headers)
    return response


def _anybody() -> Any:
    from embermq.http.login import Actor

    return Actor("anybody", PUBLIC, "")


_ANYBODY: Final = _anybody()
