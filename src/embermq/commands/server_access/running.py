"""A running server, through the HTTP interface on the socket in its directory."""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

from embermq.commands.server_access.target import Stat, Target
from embermq.http.client import ANSWER_TIMEOUT_S, HttpClient, ServerRefusal
from embermq.http.client import connect as connect_client
from embermq.http.messages_json import retained_from
from embermq.instants import microseconds, utc_text
from embermq.protocol.packets import Publish
from embermq.store.interface import Retained, RetainedChange, StoreError

REQUEST_MESSAGES: Final = 1_500
REQUEST_BYTES: Final = 2 * 1024 * 1024
"""How much one request sets: enough for a commit of many messages."""


def connect(path: Path, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> "RunningServer | None":
    """The server that listens at a path; None if none does."""
    client = connect_client(path, answer_timeout_s)
    return RunningServer(client) if client is not None else None


@contextmanager
def _refusals_as_store_errors() -> Iterator[None]:
    try:
        yield
    except ServerRefusal as refusal:
        raise StoreError(str(refusal)) from None


@final
class RunningServer(Target):
    """One connection to a server."""

    __slots__ = ("client",)

    def __init__(self, client: HttpClient) -> None:
        self.client: Final = client

    def messages(
        self, topic_filter: str, as_of_us: int | None = None, payload_bytes_max: int | None = None
    ) -> Iterator[tuple[Retained, int]]:
        with _refusals_as_store_errors():
            for found in self.client.lines(
                "/api/v1/retained",
                filter=topic_filter,
                as_of=_instant(as_of_us),
                payload_bytes=payload_bytes_max,
            ):
                yield retained_from(found), found["payload_bytes"]

    def message(self, topic_name: str, as_of_us: int | None = None) -> Retained | None:
        try:
            return retained_from(
                self.client.get("/api/v1/retained/message", topic=topic_name, as_of=_instant(as_of_us))
            )
        except ServerRefusal as refusal:
            if refusal.status == 404:
                return None
            raise StoreError(str(refusal)) from None

    def changes(self, topic_name: str, since_us: int | None = None) -> Iterator[RetainedChange]:
        cursor: str | None = None
        since = _instant(since_us)
        while True:
            with _refusals_as_store_errors():
                page = self.client.get("/api/v1/retained/history", topic=topic_name, since=since, cursor=cursor)
            for found in page["items"]:
                message = retained_from(found["message"]) if "message" in found else None
                timestamp_us = microseconds(datetime.fromisoformat(found["timestamp"]))
                yield RetainedChange(timestamp_us, found["offset"], message)
            cursor = page.get("next")
            if cursor is None:
                return

    def retain(self, messages: Iterable[Publish]) -> Iterator[str]:
        requested: list[dict[str, Any]] = []
        size_bytes = 0
        for message in messages:
            requested.append(_new_message(message))
            size_bytes += len(message.payload) + len(message.topic_name)
            if len(requested) >= REQUEST_MESSAGES or size_bytes >= REQUEST_BYTES:
                yield from self._set(requested)
                requested = []
                size_bytes = 0
        if requested:
            yield from self._set(requested)

    def _set(self, messages: list[dict[str, Any]]) -> list[str]:
        with _refusals_as_store_errors():
            answer = self.client.post("/api/v1/retained/set", {"messages": messages})
        refusals = [""] * len(messages)
        for refused in answer["refused"]:
            refusals[refused["place"]] = refused["error"]
        return refusals

    def clear(self, topic_filter: str) -> Iterator[int]:
        with _refusals_as_store_errors():
            for found in self.client.lines("/api/v1/retained/clear", {"filter": topic_filter}):
                yield found["cleared"]

    def stat(self) -> Stat:
        with _refusals_as_store_errors():
            found = self.client.get("/api/v1/statistics")
        return Stat(
            process=found["process"],
            retained_count=found["retained_count"],
            retained_bytes=found["retained_bytes"],
            budgets=[(budget["filter"], budget["count"], budget["bytes"]) for budget in found["budgets"]],
            sessions=found["persistent_sessions"],
            next_offset=found["log"]["next_offset"],
            failing="" if found["store_state"] == "ok" else found["store_state"],
        )

    def close(self) -> None:
        self.client.close()


def _instant(instant_us: int | None) -> str | None:
    return None if instant_us is None else utc_text(instant_us)


def _new_message(message: Publish) -> dict[str, Any]:
    given: dict[str, Any] = {
        "topic": message.topic_name,
        "payload_base64": b64encode(message.payload).decode(),
        "qos": message.qos,
    }
    if message.properties:
        given["properties_base64"] = b64encode(message.properties).decode()
    return given
