"""Requests to the HTTP interface of a server on another machine.

Owns: the connection, the token, and asking again while the server restarts.
Never: showing the token: it is in no error and no log line.
"""

import json
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, final
from urllib.parse import urlencode, urlsplit

from embermq.history.errors import ServerRefused, ServerUnreachable
from embermq.history.location import LogLocation
from embermq.instants import microseconds

ANSWER_TIMEOUT_S: Final = 30.0
PAUSE_S: Final = 0.1
PAUSE_MAX_S: Final = 2.0
_RETRIED: Final = (429, 502, 503, 504)


@final
class Requests:
    """One connection to a server, for one request after the other. It is opened again as needed."""

    __slots__ = ("_authorities", "_connection", "_date", "_headers", "_monotonic_s", "_sleep", "_timeout_s", "url")

    def __init__(
        self,
        location: LogLocation,
        monotonic_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert location.server is not None
        self.url: Final = location.server.rstrip("/")
        self._authorities: Final = location.authorities
        self._timeout_s: Final = location.timeout_s
        self._headers: Final = {} if location.token is None else {"Authorization": f"Bearer {location.token}"}
        self._monotonic_s: Final = monotonic_s
        self._sleep: Final = sleep
        self._connection: HTTPConnection | None = None
        self._date: str | None = None

    def get_json(self, path: str, query: Mapping[str, object] | None = None) -> dict[str, Any]:
        """The JSON answer to a GET."""
        found = json.loads(self.get_bytes(path, query))
        assert isinstance(found, dict)
        return found

    def get_bytes(self, path: str, query: Mapping[str, object] | None = None) -> bytes:
        """The answer to a GET."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def server_time_us(self) -> int:
        """When the server gave its last answer, by its clock, to the second; by ours if it did not say."""
        try:
            return microseconds(parsedate_to_datetime(self._date or ""))
        except ValueError:
            return time.time_ns() // 1000

    def post(self, path: str, body: Mapping[str, object]) -> None:
        """Send a change that may be made twice."""
        self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, target: str, body: bytes | None) -> bytes:
        """Ask until there is an answer. ServerUnreachable after a while without one, ServerRefused for a refusal."""
        began_s, pause_s = self._monotonic_s(), PAUSE_S
        while True:
            try:
                return self._ask_once(method, target, body)
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise ServerUnreachable(
                    f"{self.url}: its certificate is not trusted: {error.verify_message}; caFile names the authority"
                ) from None
            except (OSError, HTTPException) as error:
                self.close()
                waited_s = self._monotonic_s() - began_s
                if waited_s >= self._timeout_s:
                    raise ServerUnreachable(
                        f"{self.url} does not answer since {waited_s:.0f} s: {_reason(error)}"
                    ) from None
            self._sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _ask_once(self, method: str, target: str, body: bytes | None) -> bytes:
        if self._connection is None:
            self._connection = self._connect()
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, target, body, headers)
        response = self._connection.getresponse()
        self._date = response.headers.get("Date")
        data = response.read()
        if response.status in _RETRIED:
            raise _TryAgain(_sentence(response, data))
        if response.status != 200:
            raise ServerRefused(response.status, self.url, _sentence(response, data))
        return data

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        timeout_s = min(ANSWER_TIMEOUT_S, max(1.0, self._timeout_s))
        connection: HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cadata=self._authorities)
            connection = HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)
        else:
            connection = HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        connection.connect()
        assert isinstance(connection.sock, socket.socket)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _TryAgain(HTTPException):
    """The server cannot answer now."""


def _sentence(response: HTTPResponse, data: bytes) -> str:
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {response.status}"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
