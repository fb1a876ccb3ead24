"""Facts about the server: health, statistics, effective settings."""

import os
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from embermq import __version__
from embermq.errors import ConfigError
from embermq.http.fields import Model, Nothing
from embermq.http.operation import OPERATOR, PUBLIC, READER, VIEWER, Answer, Call, Operation
from embermq.http.refusal import HttpRefusal
from embermq.http.service import Service

Role = Literal["viewer", "reader", "operator"]
_ROLES: Final[dict[int, Role]] = {VIEWER: "viewer", READER: "reader", OPERATOR: "operator"}
SECRET_WORDS: Final = ("password", "secret", "token", "webhook")
"""A setting with such a word in its name is left out, unless it names a file."""


class Health(Model):
    status: str


class Budget(Model):
    """How much a budget for retained messages has used."""

    filter: str
    count: int
    bytes: int


class LogFacts(Model):
    segments: int
    bytes: int
    first_offset: int
    next_offset: int


class Statistics(Model):
    """Numbers of the server. `counters` are those of `$SYS/broker/`, by the same names."""

    version: str
    process: int
    uptime_s: int
    store_state: Annotated[str, Field(description="ok, or why nothing can be made durable.")]
    clients: int
    sessions: int
    persistent_sessions: int
    subscriptions: int
    share_groups: int
    retained_count: int
    retained_bytes: int
    budgets: list[Budget]
    log: LogFacts
    alerts_firing: int
    listeners: Annotated[list[str], Field(description="Where clients of MQTT can connect, as URLs.")]
    counters: dict[str, int]


class WhoAmI(Model):
    """Who asks, and what this server has to ask about. Without a log there is no history."""

    name: str
    role: Role
    version: str
    has_log: bool
    has_lake: bool
    sees_all: Annotated[bool, Field(description="Whether the access list does not narrow this caller to some topics.")]


class Reloaded(Model):
    """What was read again, what of it had changed, and which changed settings are in force after a restart only."""

    read: list[str]
    changed: list[str]
    needs_restart: list[str]
    settings_problem: Annotated[str, Field(description="Why the settings file cannot be read; empty if it can.")]
    listeners: Annotated[list[str], Field(description="Which listeners were opened, closed or changed.")]
    failed: Annotated[list[str], Field(description="Which listeners could not be opened, and why.")]


class SettingsAnswer(Model):
    """The effective settings by section, without secrets; empty for a server inside another program."""

    settings: dict[str, dict[str, Any]]


async def health(call: Call[Nothing, Nothing]) -> Answer:
    return Health(status="ok")


async def ready(call: Call[Nothing, Nothing]) -> Answer:
    if call.service.stopping.is_set():
        raise HttpRefusal(503, "the server is shutting down")
    failing = call.service.server.store.failing()
    if failing:
        raise HttpRefusal(503, f"nothing can be made durable: {failing}")
    return Health(status="ready")


async def who_am_i(call: Call[Nothing, Nothing]) -> Answer:
    return WhoAmI(
        name=call.actor.name,
        role=_ROLES[call.actor.role],
        version=__version__,
        has_log=call.view.has_log,
        has_lake=call.view.has_lake,
        sees_all=call.view.sees_all,
    )


async def statistics(call: Call[Nothing, Nothing]) -> Answer:
    return statistics_of(call.service)


def statistics_of(service: Service) -> Statistics:
    server = service.server
    store = server.store
    sessions = server.core.sessions()
    segments = store.history.log_segments()
    count, size_bytes = store.retained.totals()
    return Statistics(
        version=__version__,
        process=os.getpid(),
        uptime_s=server.core.uptime_ms(server.now_ms()) // 1000,
        store_state=store.failing() or "ok",
        clients=server.core.counters.clients_connected,
        sessions=len(sessions),
        persistent_sessions=sum(1 for session in sessions if session.session_id),
        subscriptions=server.core.subscription_count(),
        share_groups=len(server.core.share_groups()),
        retained_count=count,
        retained_bytes=size_bytes,
        budgets=[
            Budget(filter=topic_filter, count=used, bytes=used_bytes)
            for topic_filter, used, used_bytes in store.retained.budget_totals()
        ],
        log=LogFacts(
            segments=len(segments),
            bytes=sum(segment.size_bytes for segment in segments),
            first_offset=segments[0].first_offset if segments else store.next_offset(),
            next_offset=store.next_offset(),
        ),
        alerts_firing=sum(1 for alert in service.alerts if alert.state == "firing"),
        listeners=service.calls.listeners() if service.calls is not None else [],
        counters=server.core.counter_values(),
    )


async def reload(call: Call[Nothing, Nothing]) -> Answer:
    calls = call.service.calls
    if calls is None:
        raise HttpRefusal(422, "this server reads no files")
    outcome = "failed"
    try:
        found = await calls.reload()
        outcome = f"read {', '.join(found.read)} again"
    except ConfigError as error:
        outcome = f"not reloaded: {error}"
        raise HttpRefusal(422, f"not reloaded, the old settings stay in use: {error}") from None
    finally:
        call.audit("reload", "", outcome)
    return Reloaded(**asdict(found))


async def settings(call: Call[Nothing, Nothing]) -> Answer:
    return SettingsAnswer(
        settings={
            section: {key: _shown(value) for key, value in values.items() if not is_secret(key)}
            for section, values in call.service.settings.items()
        }
    )


def _shown(value: Any) -> Any:
    """A setting without the secrets in its tables, where it is a list of them."""
    if not isinstance(value, list):
        return value
    return [
        {key: part for key, part in each.items() if not is_secret(key)} if isinstance(each, dict) else each
        for each in value
    ]


def is_secret(key: str) -> bool:
    return any(word in key for word in SECRET_WORDS) and not key.endswith("_file")


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/healthz",
        role=PUBLIC,
        summary="Whether the server answers at all.",
        handle=health,
        query=Nothing,
        body=Nothing,
        answer=Health,
    ),
    Operation(
        method="GET",
        path="/readyz",
        role=PUBLIC,
        summary="Whether the server takes messages and can make them durable.",
        handle=ready,
        query=Nothing,
        body=Nothing,
        answer=Health,
    ),
    Operation(
        method="GET",
        path="/api/v1/whoami",
        role=VIEWER,
        summary="Who asks, with which role.",
        handle=who_am_i,
        query=Nothing,
        body=Nothing,
        answer=WhoAmI,
        is_narrowed=True,
    ),
    Operation(
        method="GET",
        path="/api/v1/statistics",
        role=VIEWER,
        summary="Numbers of the server.",
        handle=statistics,
        query=Nothing,
        body=Nothing,
        answer=Statistics,
    ),
    Operation(
        method="POST",
        path="/api/v1/reload",
        role=OPERATOR,
        summary="Read users, rights, tokens, certificates and listeners again; on an error the old ones stay in use.",
        handle=reload,
        query=Nothing,
        body=Nothing,
        answer=Reloaded,
        statuses=(422,),
    ),
    Operation(
        method="GET",
        path="/api/v1/settings",
        role=VIEWER,
        summary="The effective settings, without secrets.",
        handle=settings,
        query=Nothing,
        body=Nothing,
        answer=SettingsAnswer,
    ),
)
