"""Webhooks: the change of an alert as an HTTP POST, from a thread for each host, so that nobody else waits for it.

Owns: how often it is tried, and how many may wait for a host.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from queue import Empty, Full, Queue
from typing import Final, final
from urllib.parse import urlsplit

from embermq.named_thread import NamedThread

WAITING_MAX: Final = 100
TIMEOUT_S: Final = 10.0
PAUSES_S: Final = (1.0, 5.0, 25.0)
"""Between one attempt and the next; after the last one the change is given up."""

Told = Callable[[str], None]
"""Called on the thread with why a POST has failed for good, or with an empty text."""


@final
class Webhooks:
    """The POSTs of one server. Those to one host go one after the other; a host that hangs delays no other."""

    __slots__ = ("_hosts", "_pauses_s")

    def __init__(self, pauses_s: tuple[float, ...] = PAUSES_S) -> None:
        self._pauses_s: Final = pauses_s
        self._hosts: Final[dict[str, _Host]] = {}  # as many as the settings name

    @property
    def sent(self) -> int:
        return sum(host.sent for host in self._hosts.values())

    @property
    def failed(self) -> int:
        return sum(host.failed for host in self._hosts.values())

    def send(self, url: str, body: bytes, told: Told) -> None:
        """POST a body of JSON soon."""
        name = urlsplit(url).netloc
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host(self._pauses_s)
        host.send(url, body, told)

    def close(self) -> None:
        """What waits is not sent any more."""
        for host in self._hosts.values():
            host.close()


@final
class _Host:
    """What goes to one host, on a thread of its own."""

    __slots__ = ("_pauses_s", "_waiting", "failed", "sent")

    def __init__(self, pauses_s: tuple[float, ...]) -> None:
        self.sent = 0
        self.failed = 0
        self._pauses_s: Final = pauses_s
        self._waiting: Final[Queue[tuple[str, bytes, Told] | None]] = Queue(WAITING_MAX)
        NamedThread(self._work, "ember-webhook").start()

    def send(self, url: str, body: bytes, told: Told) -> None:
        try:
            self._waiting.put_nowait((url, body, told))
        except Full:
            self.failed += 1
            told(f"{WAITING_MAX} changes wait for their webhook already")

    def close(self) -> None:
        with suppress(Empty):  # the thread may take one meanwhile
            while True:
                self._waiting.get_nowait()
        self._waiting.put_nowait(None)

    def _work(self) -> None:
        while (asked := self._waiting.get()) is not None:
            url, body, told = asked
            problem = self._try(url, body)
            if problem:
                self.failed += 1
            else:
                self.sent += 1
            told(problem)

    def _try(self, url: str, body: bytes) -> str:
        problem = _post(url, body)
        for pause_s in self._pauses_s:
            if not problem:
                break
            time.sleep(pause_s)
            problem = _post(url, body)
        return problem


def _post(url: str, body: bytes) -> str:
    """Why a POST has failed; empty if it was taken. Redirections are not followed."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("POST", target, body, {"Content-Type": "application/json", "User-Agent": "embermq"})
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        return f"{parts.hostname} does not take it: {reason}"
    finally:
        connection.close()
    return "" if 200 <= status < 300 else f"{parts.hostname} answers with status {status}"
