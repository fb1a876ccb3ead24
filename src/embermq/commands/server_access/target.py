"""A server as its operator's commands see it, whether it runs or not.

Owns: what can be asked and done, and finding out which of the two it is.
"""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer

from embermq.commands.options import directory_option
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.config import Settings
    from embermq.protocol.packets import Publish
    from embermq.store.interface import Retained

Data = Annotated[Path | None, directory_option("--data", "The server's data directory.", "ember-data")]
Config = Annotated[
    Path | None, typer.Option("--config", envvar="EMBERMQ_CONFIG", help="The server's settings file, TOML.")
]


@dataclass(frozen=True, slots=True)
class Stat:
    """What a store holds. `process` is 0 where no server runs."""

    process: int
    retained_count: int
    retained_bytes: int
    budgets: list[tuple[str, int, int]]
    sessions: int
    next_offset: int
    failing: str


class Operated(ABC):
    """The retained messages of one server. What goes wrong is a `ConfigError` or a `StoreError`, as a sentence."""

    @abstractmethod
    def messages(
        self, topic_filter: str, as_of_us: int | None = None, payload_bytes_max: int | None = None
    ) -> "Iterator[tuple[Retained, int]]":
        """What a filter matches, now or at an instant, each with its payload's size.

        With a bound, only the beginning of a payload is there.
        """

    @abstractmethod
    def message(self, topic_name: str, as_of_us: int | None = None) -> "Retained | None":
        """The retained message of one topic, now or at an instant."""

    @abstractmethod
    def retain(self, messages: "Iterable[Publish]") -> Iterator[str]:
        """Retain messages; for each, once it is durable: empty, or why it was refused."""

    @abstractmethod
    def clear(self, topic_filter: str) -> Iterator[int]:
        """Clear what a filter matches; how many are cleared so far, durably, and at last how many in all."""

    @abstractmethod
    def stat(self) -> Stat:
        """What there is."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the server or of its directory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def settings_of(data: Path | None, config: Path | None) -> "Settings":
    """The settings of a server with a directory, as far as commands need them."""
    from embermq.config import load_unchecked

    store = {} if data is None else {"directory": data, "memory": False}
    settings = load_unchecked(config, {"store": store})
    if settings.store.memory:
        raise ConfigError("store.memory is true: such a server keeps nothing that a command could reach")
    _check_directory(settings.store.directory)
    return settings


def operated(data: Path | None, config: Path | None) -> Operated:
    """The server that runs on the directory, or the directory of the one that does not run."""
    from embermq.commands.server_access.running import connected
    from embermq.commands.server_access.stopped import Stopped
    from embermq.engines import CONTROL_SOCKET
    from embermq.store.errors import StoreBusy

    settings = settings_of(data, config)
    running = connected(settings.store.directory / CONTROL_SOCKET)
    if running is not None:
        return running
    try:
        return Stopped(settings)
    except StoreBusy as error:
        raise ConfigError(f"{error}, and its control socket does not answer: is it starting or stopping?") from None


@contextmanager
def sentences() -> Iterator[None]:
    """Turns what can go wrong with a store into the one sentence of a command; a reader who has enough is no error."""
    from embermq.store.interface import StoreError

    try:
        yield
        sys.stdout.flush()
    except StoreError as error:
        raise ConfigError(str(error)) from None
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _check_directory(directory: Path) -> None:
    """A wrong name must not become a new directory."""
    try:
        os.scandir(directory / "log").close()
    except PermissionError:
        raise ConfigError(f"{directory} is not accessible for this user") from None
    except OSError:
        raise ConfigError(f"{directory} is not the data directory of a server: expected one with --data DIR") from None
