"""A client of the HTTP interface of a running server, for commands: on the unix socket, without asyncio.

with HttpClient(data / "control.sock") as server:
    server.get("/api/v1/statistics")["clients"]
    for client in server.lines("/api/v1/clients"): ...
"""

import json
import socket
from collections.abc import Generator, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final
from urllib.parse import urlencode

from embermq.errors import ConfigError
from embermq.transport.sockets.addresses import unix_address

ANSWER_TIMEOUT_S: Final = 15.0
READ_BYTES: Final = 256 * 1024
NDJSON: Final = "application/x-ndjson"


@final
class ServerRefusal(Exception):
    """The server has refused a request; `str` gives its sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status: Final = status


@final
class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path: Final = path

    def connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self.timeout)
        try:
            with unix_address(self._path) as address:
                connection.connect(address)
        except BaseException:
            connection.close()
            raise
        self.sock = connection


def connect(path: Path, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> "HttpClient | None":
    """A client of the server that listens at a path; None if none does."""
    client = HttpClient(path, answer_timeout_s)
    try:
        client.open()
    except PermissionError:
        raise ConfigError(f"{path} is not accessible for this user") from None
    except OSError:  # there is no socket, or a killed server has left it
        return None
    return client


@final
class HttpClient:
    """One connection, for one request after the other. Errors are a `ServerRefusal`, or a `ConfigError` where no answer
    comes."""

    __slots__ = ("_connection", "_path", "_timeout_s")

    def __init__(self, path: Path, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._path: Final = path
        self._timeout_s: Final = answer_timeout_s
        self._connection: Final = _UnixConnection(path, answer_timeout_s)

    def open(self) -> None:
        """Connect now rather than with the first request; OSError as it comes."""
        self._connection.connect()

    def get(self, path: str, **query: str | int | None) -> dict[str, Any]:
        """The JSON answer to a GET. Parameters that are None are left out."""
        return self._json(self._ask("GET", _with_query(path, query), None, "application/json"))

    def text(self, path: str) -> str:
        """An answer that is not JSON, such as `/metrics`."""
        response = self._ask("GET", path, None, "*/*")
        try:
            return response.read().decode()
        except (OSError, HTTPException, UnicodeDecodeError) as error:
            self.close()
            raise self._lost(error) from None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON answer to a POST."""
        return self._json(self._ask("POST", path, body, "application/json"))

    def lines(
        self, path: str, body: dict[str, Any] | None = None, **query: str | int | None
    ) -> Generator[dict[str, Any], None, None]:
        """All items of a list, as they come; with a body, the lines that a POST is answered with."""
        method = "GET" if body is None else "POST"
        response = self._ask(method, _with_query(path, query), body, NDJSON)
        for line in self._lines_of(response):
            found: dict[str, Any] = json.loads(line)
            if found.keys() == {"error"}:
                self.close()
                raise ServerRefusal(response.status, found["error"])
            yield found

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, target: str, body: dict[str, Any] | None, accept: str) -> HTTPResponse:
        headers = {"Accept": accept}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        connection = self._connection
        try:
            try:
                connection.request(method, target, data, headers)
            except (BrokenPipeError, ConnectionResetError):
                if connection.sock is None:
                    raise  # else the server has closed the connection, and its answer may say why
            response = connection.getresponse()
            if response.status >= 400:
                raise ServerRefusal(response.status, _sentence(response))
        except (OSError, HTTPException) as error:
            self.close()
            raise self._lost(error) from None
        return response

    def _json(self, response: HTTPResponse) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise self._lost(error) from None
        return found

    def _lines_of(self, response: HTTPResponse) -> Iterator[bytes]:
        rest = b""
        is_whole = False
        try:
            while data := response.read1(READ_BYTES):
                lines = (rest + data).split(b"\n")
                rest = lines.pop()
                yield from lines
            is_whole = response.isclosed()
        except (OSError, HTTPException) as error:
            raise self._lost(error) from None
        finally:
            if not is_whole:  # what is left of the answer must not be taken for that to the next request
                self.close()
        if rest or not is_whole:
            raise self._lost(None)

    def _lost(self, error: Exception | None) -> ConfigError:
        if isinstance(error, TimeoutError):
            return ConfigError(f"the server does not answer on {self._path} within {self._timeout_s:g} s")
        return ConfigError(f"the server on {self._path} ended before it had answered")


def _with_query(path: str, query: dict[str, str | int | None]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _sentence(response: HTTPResponse) -> str:
    data = response.read()
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered with status {response.status}"
