"""What commands print: one style of tables, sizes, times, JSON lines and CSV.

Owns: how values become text, and that no character of a client's text reaches a terminal that the terminal would obey:
control characters, escape sequences, bidirectional overrides.
Every time is UTC, in the form that `embermq.instants.instant_us` reads back. Sizes have binary units, as settings do.
"""

import json
import shutil
import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from typing import Annotated, Any, Final, NamedTuple, final
from unicodedata import combining, east_asian_width
from uuid import UUID

import typer

from embermq.errors import ConfigError
from embermq.instants import microseconds, utc_text

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Csv = Annotated[bool, typer.Option("--csv", help="Comma-separated values, with a line of column names.")]

SHORTEST_COLUMN: Final = 12
"""A column of a table is not cut to fewer characters than these."""
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_ESCAPE_MAX: Final = 0xFFFF


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


def printable(text: str) -> str:
    """Text with everything that a terminal would not show as a character written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_bytes(data: bytes) -> str:
    """Bytes as such a text: UTF-8 where they are, otherwise escapes."""
    return printable(data.decode("utf-8", "backslashreplace"))


def json_line(value: object) -> str:
    """A value as one line of JSON that is safe to show: JSON's own escapes stand for what is not printable."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    code = ord(character)
    if code <= _ESCAPE_MAX:
        return f"\\u{code:04x}"
    high, low = 0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code - 0x10000 & 0x3FF)
    return f"\\u{high:04x}\\u{low:04x}"


def text_or_base64(name: str, value: bytes) -> dict[str, str]:
    """Bytes as a member of a JSON object: text if they are UTF-8, otherwise base64, with a name that says so."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}


def size_text(size_bytes: int) -> str:
    """A number of bytes for people: 312 B, 1.5 KiB, 20.0 GiB."""
    if size_bytes < 1024:
        return f"{size_bytes:d} B"
    size = float(size_bytes)
    for unit in _UNITS:
        size /= 1024
        if size < 1023.95 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}"


def duration_text(seconds: float) -> str:
    """A time span for people, in its two largest units: 12s, 4m 7s, 3h 0m, 12d 5h."""
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    if minutes:
        return f"{minutes}m {whole % 60}s"
    return f"{whole}s"


def counted(number: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def width_of(text: str) -> int:
    """How many cells of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, width: int) -> str:
    """The beginning of a text, at most this many cells wide, with an ellipsis if it is not all."""
    if width_of(text) <= width:
        return text
    kept = ""
    taken = 1
    for c in text:
        taken += width_of(c)
        if taken > width:
            break
        kept += c
    return f"{kept}…"


class Column(NamedTuple):
    """A column of a table. `width` is the least one; numbers stand on the right."""

    name: str
    width: int = 0
    right: bool = False


def table_line(columns: Sequence[Column], cells: Sequence[str]) -> str:
    """One line of a table whose columns have fixed widths, for rows that come one by one. Cells must be printable."""
    padded = []
    for column, cell in zip(columns, cells, strict=True):
        space = " " * max(0, column.width - width_of(cell))
        padded.append(space + cell if column.right else cell + space)
    return "  ".join(padded).rstrip()


def fitted(columns: Sequence[Column], name: str, texts: Iterable[str], width_max: int) -> list[Column]:
    """The columns with one of them as wide as its name and the first texts of it need, up to a bound."""
    width = min(width_max, max([width_of(name), *map(width_of, texts)]))
    return [column._replace(width=width) if column.name == name else column for column in columns]


def heading(columns: Sequence[Column]) -> str:
    """The first line of a table."""
    return table_line(columns, [column.name.upper() for column in columns])


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]], totals: Sequence[object] = ()) -> None:
    """Print rows as a table, as wide as they need; on a terminal, long columns are cut to its width.

    Values may be of any type, and come from clients: they are made printable here. `totals` is a last line.
    """
    lines = [[cell_text(value) for value in row] for row in [*rows, *([totals] if totals else [])]]
    columns = [
        Column(
            printable(name),
            max([width_of(printable(name)), *(width_of(line[number]) for line in lines)]),
            bool(rows) and all(_is_number(row[number]) for row in rows),
        )
        for number, name in enumerate(names)
    ]
    if sys.stdout.isatty():
        columns = _narrowed(columns, shutil.get_terminal_size().columns)
        lines = [[shortened(cell, c.width) for c, cell in zip(columns, line, strict=True)] for line in lines]
    print(heading(columns))
    for line in lines:
        print(table_line(columns, line))


def _narrowed(columns: Sequence[Column], width: int) -> list[Column]:
    """Columns cut to a total width, the widest first."""
    widths = [column.width for column in columns]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths, default=0) > SHORTEST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return [column._replace(width=width) for column, width in zip(columns, widths, strict=True)]


def _is_number(value: object) -> bool:
    return (isinstance(value, (int, float, Decimal, Size)) and not isinstance(value, bool)) or value is None


@final
class Size(int):
    """A number of bytes, which tables show with its unit and JSON as the number."""

    def __str__(self) -> str:
        return size_text(int(self))


def cell_text(value: object) -> str:
    """A value in a table, printable."""
    match value:
        case None:
            return ""
        case str():
            return printable(value)
        case bytes() | bytearray() | memoryview():
            return printable_bytes(bytes(value))
        case bool():
            return "yes" if value else "no"
        case datetime():
            return utc_text(microseconds(value))
        case list() | dict() | tuple():
            return json_line(json_value(value))
        case _:
            return printable(str(value))


def json_value(value: object) -> Any:
    """A value of a query as JSON has it; bytes that are not UTF-8 as base64."""
    match value:
        case None | bool() | str():
            return value
        case float():
            return value if isfinite(value) else None
        case int():
            return int(value)
        case bytes() | bytearray() | memoryview():
            return next(iter(text_or_base64("", bytes(value)).values()))
        case datetime():
            return utc_text(microseconds(value))
        case date() | time() | timedelta() | Decimal() | UUID():
            return str(value)
        case dict():
            return {str(key): json_value(each) for key, each in value.items()}
        case list() | tuple():
            return [json_value(each) for each in value]
        case _:
            return str(value)


def json_object(names: Sequence[str], row: Sequence[object]) -> dict[str, Any]:
    """A row as a JSON object; a column of bytes that are not UTF-8 is called `name_base64`."""
    found: dict[str, Any] = {}
    for name, value in zip(names, row, strict=True):
        if isinstance(value, (bytes, bytearray, memoryview)):
            found |= text_or_base64(name, bytes(value))
        else:
            found[name] = json_value(value)
    return found


def print_rows(names: Sequence[str], rows: Iterable[Sequence[object]], format: Format) -> None:
    """Print the rows of a query. CSV has values as they are, except on a terminal."""
    if format is Format.TABLE:
        print_table(names, list(rows))
    elif format is Format.JSON:
        for row in rows:
            print(json_line(json_object(names, row)))
    else:
        import csv

        on_terminal = sys.stdout.isatty()
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(printable, names) if on_terminal else names)
        for row in rows:
            cells = [_csv_cell(value) for value in row]
            writer.writerow(map(printable, cells) if on_terminal else cells)


def _csv_cell(value: object) -> str:
    shown = json_value(value)
    if shown is None:
        return ""
    if isinstance(shown, bool):
        return str(shown).lower()
    return json_line(shown) if isinstance(shown, (dict, list)) else str(shown)
