"""Lines of comma-separated values (RFC 4180): a row for each line, its values in the order of the columns.

Owns: how the text of a value becomes the value of a column. An empty one is null.
"""

import csv
import re
from collections.abc import Callable
from decimal import Decimal
from io import StringIO
from typing import Any, Final

import pyarrow as pa

from embermq.lake.payloads.values import NOT_UTF8, Misfit

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)


def csv_documents(schema: pa.Schema) -> Callable[[bytes], list[Any]]:
    """A function that gives a document for each line of a payload."""
    columns = [(field.name, _meant_by(field.type)) for field in schema]

    def documents(payload: bytes) -> list[Any]:
        try:
            text = payload.decode("utf-8")
        except UnicodeDecodeError:
            raise Misfit(NOT_UTF8) from None
        found = []
        lines = csv.reader(StringIO(text, newline=""), strict=True)
        try:
            for values in lines:
                if values:
                    found.append(_line(values, columns, lines.line_num))
        except csv.Error as error:
            raise Misfit(f"not CSV: {error}", f"line {lines.line_num}") from None
        if not found:
            raise Misfit("no line")
        return found

    return documents


def _line(values: list[str], columns: list[tuple[str, Callable[[str], Any]]], number: int) -> dict[str, Any]:
    if len(values) != len(columns):
        raise Misfit(f"expected {len(columns)} values, found {len(values)}", f"line {number}")
    return {name: meant(value) for (name, meant), value in zip(columns, values, strict=True) if value}


def _meant_by(kind: pa.DataType) -> Callable[[str], Any]:
    """What a text stands for, if it can be meant for a type; otherwise the text, which the column then refuses."""
    if pa.types.is_signed_integer(kind):
        return lambda text: int(text) if _WHOLE.fullmatch(text) else text
    if pa.types.is_floating(kind):
        return lambda text: float(text) if _NUMBER.fullmatch(text) else text
    if pa.types.is_decimal(kind):
        return lambda text: Decimal(text) if _NUMBER.fullmatch(text) else text
    if pa.types.is_boolean(kind):
        return lambda text: {"true": True, "false": False}.get(text, text)
    return lambda text: text
