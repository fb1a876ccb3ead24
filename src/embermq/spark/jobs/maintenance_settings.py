"""The settings of a lake's maintenance, from the same file as the typed tables:

    [pipeline]
    compact_files = 16
    vacuum_hours = 24

    [pipeline.retention]
    messages = "90d"

Owns: these settings, and the sentence for a wrong one.
"""

import re
from datetime import timedelta
from pathlib import Path
from typing import Final

from embermq.spark.errors import PipelineError
from embermq.spark.jobs.typed_tables import TypedTable, read_section, read_typed_tables
from embermq.spark.lake.maintenance import AGE_COLUMNS, COMPACT_FILES, VACUUM_HOURS, MaintenanceSettings

_AGE: Final = re.compile(r"([1-9][0-9]{0,5}) *([hd])")
_UNIT_HOURS: Final = {"h": 1, "d": 24}


def read_maintenance(config: Path | None) -> MaintenanceSettings:
    """The settings of a configuration file; the defaults without a file."""
    if config is None:
        return MaintenanceSettings()
    section = read_section(config)
    files = section.get("compact_files", COMPACT_FILES)
    if not isinstance(files, int) or isinstance(files, bool) or files < 2:
        raise PipelineError(f"{config}: pipeline.compact_files: {files!r}: expected a whole number of at least 2")
    hours = section.get("vacuum_hours", VACUUM_HOURS)
    if not isinstance(hours, (int, float)) or isinstance(hours, bool) or not 1 <= hours < 1e6:
        raise PipelineError(f"{config}: pipeline.vacuum_hours: {hours!r}: expected a number of at least 1")
    retention = section.get("retention", {})
    if not isinstance(retention, dict):
        raise PipelineError(f"{config}: pipeline.retention: expected a section")
    known = [*AGE_COLUMNS, *_names(read_typed_tables(config))]
    return MaintenanceSettings(
        files, float(hours), {name: _age(config, name, age, known) for name, age in retention.items()}
    )


def _names(tables: tuple[TypedTable, ...]) -> list[str]:
    return [name for table in tables for name in (table.name, table.rejects)]


def _age(config: Path, name: str, age: object, known: list[str]) -> timedelta:
    if name not in known:
        raise PipelineError(f"{config}: pipeline.retention.{name}: expected one of {', '.join(known)}")
    found = _AGE.fullmatch(age) if isinstance(age, str) else None
    if found is None:
        raise PipelineError(f"{config}: pipeline.retention.{name}: {age!r}: expected an age such as '90d' or '36h'")
    return timedelta(hours=int(found[1]) * _UNIT_HOURS[found[2]])
