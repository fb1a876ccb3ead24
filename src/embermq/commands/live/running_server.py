"""The running server that a command is about, found as every command finds its server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from embermq.commands.server_access.target import settings_of
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.http.client import HttpClient


@contextmanager
def running_server(data: Path | None, config: Path | None) -> "Iterator[HttpClient]":
    """A client of the server. A refusal of the server, and that none runs, are a ConfigError."""
    from embermq.engines import CONTROL_SOCKET
    from embermq.http.client import ServerRefusal, connect

    directory = settings_of(data, config).store.directory
    client = connect(directory / CONTROL_SOCKET)
    if client is None:
        raise ConfigError(f"no server runs on {directory}")
    with client:
        try:
            yield client
        except ServerRefusal as refusal:
            raise ConfigError(str(refusal)) from None
