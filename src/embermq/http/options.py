"""Options of the HTTP interface, as a server is started with them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from embermq.access.access_files import AccessFiles
from embermq.bridge.facts import BridgeFacts
from embermq.http.alerts.rules import AlertRule
from embermq.http.topic_metrics import TopicMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """The interface on TCP, beside the unix socket in the data directory. Port 0 is a free port; None is none.

    `names`: the host names by which browsers may address it, beside its address and localhost. Who may use it: the
    tokens of `token_file`, and users of the password file, if `has_users`, that are named as `viewers` or `operators`.
    `lake` is where the pipeline has its tables. `alerts` are checked also without a listener.
    `topic_metrics` are the topic filters with metrics of their own.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    tls: bool = False
    names: tuple[str, ...] = ()
    token_file: Path | None = None
    viewers: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    has_users: bool = False
    lake: Path | None = None
    alerts: tuple[AlertRule, ...] = ()
    topic_metrics: tuple[TopicMetric, ...] = ()

    def works_unasked(self) -> bool:
        """Whether the interface has something to do before somebody asks it on the unix socket."""
        return self.port is not None or bool(self.alerts) or bool(self.topic_metrics)


@dataclass(frozen=True, slots=True)
class ReloadReport:
    """What was read again, which of it had changed, and which settings differ from those of the file.

    The latter are sentences, and so are `listeners`, what was done to listeners, and `failed`, those that could not be
    opened. `settings_problem` says why the settings cannot be compared; empty if they can.
    """

    read: list[str]
    changed: list[str] = field(default_factory=list)
    needs_restart: list[str] = field(default_factory=list)
    settings_problem: str = ""
    listeners: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCalls:
    """What the interface asks of the program that has started the server.

    `reload` reads files again and says which; a ConfigError if one is wrong. `listeners` are URLs of clients.
    `bridges` are those of now. `access_files` are the files of users and rights, if there are any; `read_access` reads
    them again on any thread, and a call of what it returns puts them in force.
    """

    reload: Callable[[], Awaitable[ReloadReport]]
    listeners: Callable[[], list[str]]
    bridges: Callable[[], list[BridgeFacts]]
    access_files: AccessFiles | None
    read_access: Callable[[], Callable[[], None]]
