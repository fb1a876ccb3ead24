"""A running server, through the control socket in its directory (`embermq.transport.control`)."""

import json
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, final

from embermq.commands.server_access.target import Stat, Target
from embermq.errors import ConfigError
from embermq.protocol.packets import Publish
from embermq.store.interface import Retained, StoreError
from embermq.transport.addresses import unix_address
from embermq.transport.control_messages import retained_from, set_request

ANSWER_TIMEOUT_S: Final = 15.0
WINDOW_MESSAGES: Final = 1_500
WINDOW_BYTES: Final = 2 * 1024 * 1024
"""How much may be sent without an answer: enough for a commit of many messages, and so little that the answers always
fit into the socket's buffer."""


def connect(path: Path, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> "RunningServer | None":
    """The server that listens at a path; None if none does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(answer_timeout_s)
    try:
        with unix_address(path) as address:
            connection.connect(address)
    except PermissionError:
        connection.close()
        raise ConfigError(f"{path} is not accessible for this user") from None
    except OSError:  # there is no socket, or a killed server has left it
        connection.close()
        return None
    return RunningServer(connection, path)


@final
class RunningServer(Target):
    """One connection to the control socket of a server."""

    __slots__ = ("_answers", "_connection", "_path")

    def __init__(self, connection: socket.socket, path: Path) -> None:
        self._connection: Final = connection
        self._answers: Final = connection.makefile("rb")
        self._path: Final = path

    def messages(
        self, topic_filter: str, as_of_us: int | None = None, payload_bytes_max: int | None = None
    ) -> Iterator[tuple[Retained, int]]:
        request = {"op": "ls", "filter": topic_filter, "as_of_us": as_of_us, "payload_bytes_max": payload_bytes_max}
        self._ask(request)
        while "message" in (answer := self._answer()):
            yield retained_from(answer["message"]), answer["message"]["payload_bytes"]

    def message(self, topic_name: str, as_of_us: int | None = None) -> Retained | None:
        self._ask({"op": "get", "topic": topic_name, "as_of_us": as_of_us})
        found = None
        while "message" in (answer := self._answer()):
            found = retained_from(answer["message"])
        return found

    def retain(self, messages: Iterable[Publish]) -> Iterator[str]:
        requests: list[bytes] = []
        unanswered = size_bytes = 0
        for message in messages:
            requests.append(_line(set_request(message)))
            size_bytes += len(requests[-1])
            if unanswered + len(requests) >= WINDOW_MESSAGES or size_bytes >= WINDOW_BYTES:
                unanswered += len(requests)
                self._send(b"".join(requests))
                requests.clear()
                size_bytes = 0
                while unanswered > WINDOW_MESSAGES // 2:
                    unanswered -= 1
                    yield self._answer().get("refused", "")
        self._send(b"".join(requests))
        for _ in range(unanswered + len(requests)):
            yield self._answer().get("refused", "")

    def clear(self, topic_filter: str) -> Iterator[int]:
        self._ask({"op": "clear", "filter": topic_filter})
        while "cleared" in (answer := self._answer()):
            yield answer["cleared"]
        yield answer["done"]["messages"]

    def stat(self) -> Stat:
        self._ask({"op": "stat"})
        found = self._answer()["done"]
        return Stat(
            process=found["process"],
            retained_count=found["retained"][0],
            retained_bytes=found["retained"][1],
            budgets=[(topic_filter, count, size_bytes) for topic_filter, count, size_bytes in found["budgets"]],
            sessions=found["sessions"],
            next_offset=found["next_offset"],
            failing=found["failing"],
        )

    def close(self) -> None:
        self._answers.close()
        self._connection.close()

    def _ask(self, request: dict[str, Any]) -> None:
        self._send(_line({key: value for key, value in request.items() if value is not None}))

    def _send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except TimeoutError as error:
            raise self._lost(error) from None
        except OSError:
            while True:  # the server has closed the connection: its last line says why
                self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._answers.readline()
        except OSError as error:
            raise self._lost(error) from None
        if not line.endswith(b"\n"):
            raise self._lost(None)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise StoreError(answer["error"])
        return answer

    def _lost(self, error: OSError | None) -> ConfigError:
        if isinstance(error, TimeoutError):
            return ConfigError(f"the server does not answer on {self._path} within {self._connection.gettimeout():g} s")
        return ConfigError(f"the server on {self._path} ended before it had answered")


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"
