"""One HTTP request with a bound on its whole time and on its answer, for sources that ask another server.

Owns: that a server which sends its answer byte by byte, or without an end, takes no longer than the bound. Redirections
are not followed: what decides about users comes from the address that the operator has named, or not at all.
Looking up a host name has the bound of the system's resolver.
"""

import io
import socket
import ssl
from functools import cache
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import Any, Final, NamedTuple, final
from urllib.parse import urlsplit


class RequestFailed(Exception):
    """There is no answer that can be used; `str` says why, without what was sent."""


class Answer(NamedTuple):
    """An answer, which has come whole."""

    status: int
    body: bytes


def request(url: str, body: bytes | None, timeout_s: float, bytes_max: int) -> Answer:
    """GET, or POST a body of JSON; raises `RequestFailed`."""
    parts = urlsplit(url)
    deadline_s = monotonic() + timeout_s
    under: socket.socket | None = None
    connection = HTTPConnection(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Accept": "application/json", "User-Agent": "embermq", "Connection": "close"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        under = _connected(connection, parts.scheme == "https", deadline_s)
        connection.sock = _TimedSocket(under, deadline_s)
        connection.request("GET" if body is None else "POST", target, body, headers)
        response = connection.getresponse()
        found = response.read(bytes_max + 1)
        if len(found) > bytes_max:
            raise RequestFailed(f"{parts.hostname} answers with more than {bytes_max} bytes")
        return Answer(response.status, found)
    except TimeoutError:
        raise RequestFailed(f"{parts.hostname} does not answer within {timeout_s:g} s") from None
    except (OSError, HTTPException, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        raise RequestFailed(f"{parts.hostname} does not answer: {reason[:200]}") from None
    finally:
        connection.close()
        if under is not None:
            under.close()


def _connected(connection: HTTPConnection, is_encrypted: bool, deadline_s: float) -> socket.socket:
    plain = socket.create_connection((connection.host, connection.port), max(0.001, deadline_s - monotonic()))
    if not is_encrypted:
        return plain
    try:
        plain.settimeout(max(0.001, deadline_s - monotonic()))
        return _tls().wrap_socket(plain, server_hostname=connection.host)
    except BaseException:
        plain.close()
        raise


@cache
def _tls() -> ssl.SSLContext:
    """The authorities of the system; reading them takes tens of milliseconds."""
    return ssl.create_default_context()


@final
class _TimedSocket:
    """What `http.client` needs of a socket; every wait ends at the deadline of the whole request."""

    def __init__(self, under: socket.socket, deadline_s: float) -> None:
        self._under: Final = under
        self._deadline_s: Final = deadline_s

    def sendall(self, data: Any) -> None:
        self._limit()
        self._under.sendall(data)

    def recv_into(self, buffer: Any) -> int:
        self._limit()
        return self._under.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """The caller closes the socket: the answer is read after the library has closed this."""

    def _limit(self) -> None:
        left_s = self._deadline_s - monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._under.settimeout(left_s)


@final
class _Reader(io.RawIOBase):
    def __init__(self, timed: _TimedSocket) -> None:
        super().__init__()
        self._timed: Final = timed

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._timed.recv_into(buffer)
