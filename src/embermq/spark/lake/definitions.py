"""What each typed table of a lake was made from, so that a changed setting does not go unnoticed.

Owns: the files in `_embermq/definitions`, and the sentence when the settings differ from one.
A definition is written before its tables are created; it counts only while they exist. Importing this module imports no
Spark.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embermq.spark.errors import LakeError
from embermq.spark.lake.lake import Lake

Definition = Mapping[str, Any]
"""The settings of a typed table by key, as JSON has them."""


def write_definition(lake: Lake, table: str, definition: Definition) -> None:
    """Keep what a table is made from."""
    path = _path(lake, table)
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(definition))
    os.replace(new, path)


def check_definition(lake: Lake, table: str, definition: Definition) -> None:
    """LakeError if a table exists that was made from something else."""
    if not lake.has_table(table):
        return
    advice = f"`ember pipeline run --rebuild {table}` builds it again from the log"
    try:
        found = json.loads(_path(lake, table).read_text())
    except FileNotFoundError:
        raise LakeError(
            f"the table {table} in {lake.directory} was built by an earlier version, which read payloads in another "
            f"way: {advice}"
        ) from None
    except (OSError, ValueError) as error:
        raise LakeError(f"{_path(lake, table)} cannot be read ({error}): {advice}") from None
    for key, value in definition.items():
        before = found.get(key) if isinstance(found, dict) else None
        if before != value:
            raise LakeError(
                f"the table {table} in {lake.directory} was built with {key} {before!r}, the settings say {value!r}: "
                f"restore the setting, or {advice}"
            )


def _path(lake: Lake, table: str) -> Path:
    return lake.state_directory / "definitions" / f"{table}.json"
