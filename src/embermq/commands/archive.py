"""What the commands of `ember log` do with an archive: list it beside the local log, check it, restore from it."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from embermq.commands.options import bar
from embermq.commands.output import Size, counted, json_line, print_table, size_text
from embermq.commands.server_access.target import archive_address, log_directory
from embermq.errors import ConfigError
from embermq.instants import utc_seconds_text, utc_text

if TYPE_CHECKING:
    from embermq.archive.archive import Archive
    from embermq.archive.manifest import ArchivedCheckpoint, ArchivedSegment


@dataclass
class _Segment:
    """A segment, on this disk, in the archive, or both."""

    first_offset: int
    next_offset: int
    size_bytes: int
    first_timestamp_us: int
    last_timestamp_us: int
    on_disk: bool = False
    in_archive: bool = False


@dataclass
class _Checkpoint:
    """A checkpoint, on this disk, in the archive, or both."""

    offset: int
    size_bytes: int
    timestamp_us: int
    on_disk: bool = False
    in_archive: bool = False


def list_places(address: str | None, data: Path | None, config: Path | None, as_json: bool) -> None:
    """Print every segment and checkpoint with where it is, and the offsets that are missing between segments."""
    from embermq.archive.archive import open_archive

    if address is None:
        address = archive_address(data, config)
        directory: Path | None = log_directory(data, config)
    else:  # a machine that has nothing but the archive's address can list it too
        directory = log_directory(data, config) if data is not None or config is not None else None
    archive = open_archive(address) if address else None
    segments, checkpoints = _on_disk(directory) if directory is not None else ({}, {})
    if archive is not None:
        _add_archived(archive, segments, checkpoints)
    ordered = [segments[offset] for offset in sorted(segments)]
    if as_json:
        _print_json(ordered, [checkpoints[offset] for offset in sorted(checkpoints)])
        return
    rows = [
        [
            one.first_offset,
            one.next_offset - one.first_offset,
            Size(one.size_bytes),
            utc_seconds_text(one.first_timestamp_us) if one.first_timestamp_us else None,
            utc_seconds_text(one.last_timestamp_us) if one.last_timestamp_us else None,
            _where(one),
        ]
        for one in ordered
    ]
    records = sum(one.next_offset - one.first_offset for one in ordered)
    totals = [counted(len(rows), "segment"), records, Size(sum(one.size_bytes for one in ordered)), "", "", ""]
    print_table(["first offset", "records", "size", "from (UTC)", "to (UTC)", "on"], rows, totals)
    for offset in sorted(checkpoints):
        one = checkpoints[offset]
        print(
            f"the checkpoint of offset {offset}, {size_text(one.size_bytes)}, {utc_seconds_text(one.timestamp_us)}:"
            f" {_where(one)}"
        )
    lost = [] if archive is None else [(one.lost_from, one.first_offset) for one in archive.generations()]
    for before, after in pairwise(ordered):
        if before.next_offset < after.first_offset:
            is_lost = (before.next_offset, after.first_offset) in lost
            why = "lost with a machine" if is_lost else "missing"
            print(f"offsets {before.next_offset} to {after.first_offset - 1} are {why}")


def verify_archive(address: str) -> None:
    """Check every object of an archive; exits with 1 if one is damaged or missing."""
    from embermq.archive.archive import missing, open_archive
    from embermq.archive.errors import ArchiveDamaged, NotArchived

    archive = open_archive(address)
    segments, checkpoints = archive.segments(), archive.checkpoints()
    damage = 0
    kept: list[ArchivedSegment | ArchivedCheckpoint] = [*checkpoints, *segments]
    for one in kept:
        try:
            archive.check(one)
            print(f"{one.name}: {size_text(one.size_bytes)}", flush=True)
        except (ArchiveDamaged, NotArchived) as error:
            damage += 1
            print(f"damaged: {error}", flush=True)
    lost = [(one.lost_from, one.first_offset) for one in archive.generations()]
    for first, end in missing(segments):
        if (first, end) in lost:
            print(f"offsets {first} to {end - 1} were lost with a machine")
        else:
            print(f"offsets {first} to {end - 1} are missing")
    found = f"{damage} damaged" if damage else "undamaged"
    print(f"{counted(len(segments), 'segment')} and {counted(len(checkpoints), 'checkpoint')} of the archive: {found}")
    if damage:
        raise typer.Exit(1)


def restore_directory(source: str, data: Path | None, config: Path | None) -> None:
    """Make a data directory from an archive, and print what it has and what is lost."""
    from embermq.archive.restore import restore
    from embermq.config import load_unchecked
    from embermq.engines import journal_settings

    settings = load_unchecked(config, {"store": {} if data is None else {"directory": data, "memory": False}})
    if settings.store.memory:
        raise ConfigError("store.memory is true: name a directory with --data")
    with bar("fetching", "bytes") as step:
        done = restore(source, settings.store.directory, journal_settings(settings.store), step)
    print(
        f"restored offsets {done.first_offset} to {done.lost_from - 1} ({counted(done.segments, 'segment')},"
        f" {size_text(done.size_bytes)}) into {settings.store.directory}"
    )
    last = utc_text(done.last_timestamp_us)
    print(f"the first lost offset is {done.lost_from}: what was recorded after {last} is lost")
    print(f"the log goes on at offset {done.goes_on_at}, as generation {done.generation}")


def _on_disk(directory: Path) -> tuple[dict[int, _Segment], dict[int, _Checkpoint]]:
    from embermq.store.log.checkpoint import checkpoints
    from embermq.store.log.reader import LogReader

    segments = {
        info.first_offset: _Segment(
            info.first_offset,
            info.next_offset,
            info.size_bytes,
            info.first_timestamp_us,
            info.last_timestamp_us,
            on_disk=True,
        )
        for info in LogReader(directory).segments()
    }
    found = {
        one.offset: _Checkpoint(one.offset, one.size_bytes, one.timestamp_us, on_disk=True)
        for one in checkpoints(directory)
    }
    return segments, found


def _add_archived(archive: "Archive", segments: dict[int, _Segment], checkpoints: dict[int, _Checkpoint]) -> None:
    for one in archive.segments():
        local = segments.get(one.first_offset)
        if local is None or local.next_offset != one.next_offset:
            times = one.first_timestamp_us, one.last_timestamp_us
            local = _Segment(one.first_offset, one.next_offset, one.size_bytes + one.index.size_bytes, *times)
            segments[one.first_offset] = local
        local.in_archive = True
    for found in archive.checkpoints():
        kept = checkpoints.setdefault(found.offset, _Checkpoint(found.offset, found.size_bytes, found.timestamp_us))
        kept.in_archive = True


def _print_json(segments: list[_Segment], checkpoints: list[_Checkpoint]) -> None:
    for one in segments:
        print(
            json_line(
                {
                    "first_offset": one.first_offset,
                    "next_offset": one.next_offset,
                    "bytes": one.size_bytes,
                    "first_timestamp": utc_text(one.first_timestamp_us) if one.first_timestamp_us else None,
                    "last_timestamp": utc_text(one.last_timestamp_us) if one.last_timestamp_us else None,
                    "on_disk": one.on_disk,
                    "in_archive": one.in_archive,
                }
            )
        )
    for found in checkpoints:
        facts = {"checkpoint_of": found.offset, "bytes": found.size_bytes, "timestamp": utc_text(found.timestamp_us)}
        print(json_line({**facts, "on_disk": found.on_disk, "in_archive": found.in_archive}))


def _where(one: _Segment | _Checkpoint) -> str:
    return "disk and archive" if one.on_disk and one.in_archive else "disk" if one.on_disk else "archive"
