"""Where the pipeline reads the log: `--data`, or `--archive` and `--server` on a machine without the server's disk.

Owns: these options, and the sentence if they do not go together.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embermq.commands.options import directory_option
from embermq.errors import ConfigError

if TYPE_CHECKING:
    from embermq.history.location import LogLocation

LogData = Annotated[Path | None, directory_option("--data", "The server's data directory.", "store.directory")]
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Read the log from the HTTP interface of its server, not from --data.")
]
ArchiveAddress = Annotated[
    str | None, typer.Option("--archive", metavar="URL", help="Read the log from its archive; the rest from --server.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the token for --server, role reader.", show_default="EMBERMQ_TOKEN, the variable"),
]
CaFile = Annotated[
    Path | None, typer.Option(help="The authority of the server's certificate.", show_default="the system's")
]


def default_data() -> Path:
    """The data directory of a server whose settings name none."""
    from embermq.settings import Settings

    return Settings().store.directory


def log_location(
    data: Path | None, archive: str | None, server: str | None, token_file: Path | None, ca_file: Path | None
) -> "LogLocation":
    """The location that the options name."""
    from embermq.spark.errors import OptionError
    from embermq.spark.options import parse_source_options

    if data is not None and (archive is not None or server is not None):
        raise ConfigError("--data: expected no --archive and no --server beside it")
    if server is None and (token_file is not None or ca_file is not None):
        raise ConfigError("--token-file and --ca-file: expected --server beside them")
    if archive is None and server is None:
        data = data or default_data()
    given = {
        "path": archive if data is None else str(data),
        "server": server,
        "tokenFile": token_file,
        "caFile": ca_file,
    }
    try:
        return parse_source_options({name: str(value) for name, value in given.items() if value is not None}).location
    except OptionError as error:
        raise ConfigError(str(error)) from None
