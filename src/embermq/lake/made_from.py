"""What each table of a lake was made from whose rows depend on settings, so that a changed one does not go unnoticed.

Owns: the files in `_embermq/definitions`, and the sentence when the settings differ from one.
A definition is written before its tables are created; it counts only while they exist.
"""

import json
from collections.abc import Mapping
from typing import Any

from embermq.lake.errors import LakeError
from embermq.lake.evolution import may_become
from embermq.lake.lake import STATE_DIRECTORY, Lake

Definition = Mapping[str, Any]
"""The settings of a table by key, as JSON has them."""


def write_definition(lake: Lake, table: str, definition: Definition) -> None:
    """Keep what a table is made from."""
    lake.files.write(_name(table), json.dumps(definition))


def has_definition(lake: Lake, table: str) -> bool:
    """Whether it is kept what a table is made from."""
    return lake.files.read(_name(table)) is not None


def is_made_from(lake: Lake, table: str, definition: Definition) -> bool:
    """Whether a table was made from exactly this, or has been brought to it."""
    text = lake.files.read(_name(table))
    return text is not None and json.loads(text) == json.loads(json.dumps(definition))


def check_definition(lake: Lake, table: str, definition: Definition) -> None:
    """LakeError if a table exists that was made from something else, and cannot become this one (`evolution`)."""
    if not lake.has_table(table):
        return
    advice = f"`ember pipeline run --rebuild {table}` builds it again from the log"
    try:
        text = lake.files.read(_name(table))
        found = None if text is None else json.loads(text)
    except (OSError, ValueError) as error:
        raise LakeError(f"{lake.table(_name(table))} cannot be read ({error}): {advice}") from None
    if text is None:
        raise LakeError(
            f"the table {table} in {lake.place} was built by an earlier version, which read payloads in another "
            f"way: {advice}"
        )
    known = found if isinstance(found, dict) else {}
    changed = [key for key, value in definition.items() if known.get(key) != value]
    if changed and not ({*changed} <= {"schema", "aliases"} and may_become(known, definition)):
        key = changed[0]
        raise LakeError(
            f"the table {table} in {lake.place} was built with {key} {known.get(key)!r}, the settings say "
            f"{definition[key]!r}: restore the setting, or {advice}"
        )


def _name(table: str) -> str:
    return f"{STATE_DIRECTORY}/definitions/{table}.json"
