"""`ember backup` and `ember restore`: a copy of a server's data, and a data directory made from it."""

from pathlib import Path
from typing import Annotated

import typer

from embermq.commands.errors import errors_as_sentences
from embermq.commands.options import bar, directory_option
from embermq.commands.output import counted, size_text
from embermq.commands.server_access.target import Config, Data, settings_of
from embermq.errors import ConfigError


def backup(
    place: Annotated[
        str, typer.Argument(metavar="PLACE", help="A directory, or a URL: s3://, gs://, abfs://, hdfs://.")
    ],
    data: Data = None,
    config: Config = None,
) -> None:
    """Copy a server's data to a place, up to its last durable record. The server may run or be stopped.

    A later backup to the same place adds what is new. Settings, users and certificates are not part of it: copy these
    files too.
    """
    from embermq.archive.address import check_address
    from embermq.archive.backup import back_up
    from embermq.instants import utc_text

    with errors_as_sentences():
        store = settings_of(data, config).store
        if store.archive and check_address(place) == store.archive:
            raise ConfigError(f"{place} is this server's store.archive: expected another place for a backup")
        if Path(place).resolve().is_relative_to(store.directory.resolve()):
            raise ConfigError(f"{place} is in the data directory that it is a backup of: expected another place")
        with bar("copying", "bytes") as step:
            done = back_up(store.directory / "log", place, step)
    added = (
        f"copied {counted(done.records, 'record')}, {size_text(done.size_bytes)}" if done.records else "nothing is new"
    )
    if done.end == done.first_offset:
        print(f"{added}: the log is empty")
        return
    print(
        f"{added}; {place} has offsets {done.first_offset} to {done.end - 1}, up to {utc_text(done.last_timestamp_us)}"
    )


def restore(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A backup, or the archive of a server.")],
    data: Annotated[Path | None, directory_option("--data", "A directory without a log.", "ember-data")] = None,
    config: Config = None,
) -> None:
    """Make a data directory from a backup or an archive, and say what is lost since it was made."""
    from embermq.commands.archive import restore_directory

    with errors_as_sentences():
        restore_directory(place, data, config)
