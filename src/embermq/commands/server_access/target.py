"""The target of a command: a running server, or the data directory of a stopped one.

Owns: what a command can read and change, and finding out which of the two it is.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

from embermq.commands.options import config_option, directory_option
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.protocol.packets import Publish
    from embermq.settings import Settings
    from embermq.store.interface import Retained, RetainedChange

Data = Annotated[Path | None, directory_option("--data", "The server's data directory.", "ember-data")]
Config = Annotated[Path | None, config_option("The server's settings file, TOML.")]


@dataclass(frozen=True, slots=True)
class Stat:
    """The numbers of a store. `process` is 0 if no server runs."""

    process: int
    retained_count: int
    retained_bytes: int
    budgets: list[tuple[str, int, int]]
    sessions: int
    next_offset: int
    failing: str


class Target(ABC):
    """The retained messages of one server. Every error is a `ConfigError` or a `StoreError`, with one sentence."""

    @abstractmethod
    def messages(
        self, topic_filter: str, as_of_us: int | None = None, payload_bytes_max: int | None = None
    ) -> "Iterator[tuple[Retained, int]]":
        """The retained messages that a filter matches, now or as of an instant, each with its payload's size.

        With a bound, a message has only the beginning of its payload.
        """

    @abstractmethod
    def message(self, topic_name: str, as_of_us: int | None = None) -> "Retained | None":
        """The retained message of one topic, now or as of an instant."""

    @abstractmethod
    def changes(self, topic_name: str, since_us: int | None = None) -> "Iterator[RetainedChange]":
        """The changes of a topic's retained message, oldest first, as far as the log and its archive reach.

        From an instant on, if one is given: then what is older is not asked for.
        """

    @abstractmethod
    def retain(self, messages: "Iterable[Publish]") -> Iterator[str]:
        """Retain messages; yields for each, once it is durable, an empty text, or why it was refused."""

    @abstractmethod
    def clear(self, topic_filter: str) -> Iterator[int]:
        """Clear what a filter matches; yields how many are durably cleared so far, and at last how many in all."""

    @abstractmethod
    def stat(self) -> Stat:
        """The numbers of the store."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, or the store."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def settings_of(data: Path | None, config: Path | None) -> "Settings":
    """The settings of a server, as far as commands need them; `data` overrides its directory."""
    from embermq.config import load_unchecked

    store = {} if data is None else {"directory": data, "memory": False}
    settings = load_unchecked(config, {"store": store})
    if settings.store.memory:
        raise ConfigError(
            "store.memory is true: the server keeps everything in memory, so there is no data directory to read"
        )
    _check_directory(settings.store.directory)
    return settings


def log_directory(data: Path | None, config: Path | None) -> Path:
    """The directory of the log, of a server that runs or is stopped. `data` may name it itself."""
    if data is not None and not (data / "log").is_dir():
        return data  # the reader says if it is none
    return settings_of(data, config).store.directory / "log"


def archive_address(data: Path | None, config: Path | None) -> str | None:
    """The address of the log's archive in the settings; None if there is none."""
    if data is not None and not (data / "log").is_dir():
        return None
    return settings_of(data, config).store.archive or None


def open_target(data: Path | None, config: Path | None) -> Target:
    """The server that runs on the directory; if none runs, the directory itself."""
    from embermq.commands.server_access.running import connect
    from embermq.commands.server_access.stopped import StoppedServer
    from embermq.engines import CONTROL_SOCKET
    from embermq.store.errors import StoreBusy

    settings = settings_of(data, config)
    running = connect(settings.store.directory / CONTROL_SOCKET)
    if running is not None:
        return running
    try:
        return StoppedServer(settings)
    except StoreBusy as error:
        raise ConfigError(f"{error}, and its control socket does not answer: is it starting or stopping?") from None


def _check_directory(directory: Path) -> None:
    """A misspelt name must not create a new directory."""
    try:
        os.scandir(directory / "log").close()
    except PermissionError:
        raise ConfigError(f"{directory} is not accessible for this user") from None
    except OSError:
        raise ConfigError(f"{directory} is not the data directory of a server: expected one with --data DIR") from None
