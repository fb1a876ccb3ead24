"""The rows of a query as text: a table for people, JSON lines and CSV for programs."""

import csv
import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

import typer

from embermq.errors import ConfigError
from embermq.instants import microseconds, utc_text

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Csv = Annotated[bool, typer.Option("--csv", help="Comma-separated values, with a line of column names.")]


class Format(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def chosen_format(as_json: bool, as_csv: bool) -> Format:
    """The format that the options --json and --csv choose."""
    if as_json and as_csv:
        raise ConfigError("--json and --csv: expected one of them, not both")
    return Format.JSON if as_json else Format.CSV if as_csv else Format.TABLE


def print_rows(names: Sequence[str], rows: Sequence[Sequence[object]], format: Format) -> None:
    """Print the rows of a query."""
    if format is Format.TABLE:
        print_table(names, rows)
    elif format is Format.JSON:
        for row in rows:
            print(json.dumps(_json_object(names, row), ensure_ascii=False))
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_csv_cell(value) for value in row] for row in rows)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*map(_cell, row))
    # Rows are not folded in a file or a pipe.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def _cell(value: object) -> str:
    from rich.markup import escape

    if value is None:
        return ""
    if isinstance(value, (bytes, bytearray)):
        return escape(value.decode("utf-8", "backslashreplace"))
    if isinstance(value, bool):
        return str(value).lower()
    return escape(f"{value:,}" if isinstance(value, int) else str(value))


def _json_object(names: Sequence[str], row: Sequence[object]) -> dict[str, Any]:
    """A row as a JSON object; a column of bytes that are not UTF-8 is called `name_base64`."""
    found: dict[str, Any] = {}
    for name, value in zip(names, row, strict=True):
        shown = _json_value(value)
        is_base64 = isinstance(value, (bytes, bytearray)) and not _is_utf8(bytes(value))
        found[f"{name}_base64" if is_base64 else name] = shown
    return found


def _json_value(value: object) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return value.decode() if _is_utf8(bytes(value)) else b64encode(value).decode()
    if isinstance(value, datetime):
        return utc_text(microseconds(value))
    if isinstance(value, (date, Decimal)):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _json_value(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(each) for each in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _csv_cell(value: object) -> str:
    shown = _json_value(value)
    if shown is None:
        return ""
    if isinstance(shown, bool):
        return str(shown).lower()
    return json.dumps(shown, ensure_ascii=False) if isinstance(shown, (dict, list)) else str(shown)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
