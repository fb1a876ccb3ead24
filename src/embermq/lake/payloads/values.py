"""Values of a decoded payload as values of columns, strictly: a document fits its schema exactly, or there is a reason.

Owns: which value fits which type, whatever the format of the payload, and the reason when one does not.
Never: an exception other than Misfit because of a payload. It runs in Spark's Python workers.
"""

import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isfinite
from typing import Any, Final

import pyarrow as pa

from embermq.lake.schema import BINARY, STRING, TIMESTAMP, spark_sql

NOT_UTF8: Final = "not UTF-8"
TOO_LARGE: Final = "a number that is too large for {}"

Convert = Callable[[Any], Any]
"""Turns a value of a parsed document into the value of a column; raises Misfit. It is not called for null."""

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_FOUND: Final = {
    str: "a string",
    bool: "true or false",
    dict: "an object",
    list: "an array",
    bytes: "bytes",
    datetime: "an instant",
    date: "a date",
    type(None): "null",
}


class Misfit(Exception):
    """A document does not fit: the field within it, "" for the whole document, and the reason."""

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason, field)
        self.reason = reason
        self.field = field

    def within(self, outer: str) -> "Misfit":
        """The same misfit, seen from the value that contains the field."""
        separator = "." if self.field and not self.field.startswith("[") else ""
        return Misfit(self.reason, outer + separator + self.field)


def row_of(document: Any, fields: Sequence[tuple[str, Convert]]) -> list[Any]:
    """The values of an object's fields, None for those that it lacks."""
    if type(document) is not dict:
        raise wrong_type("an object", document)
    row: list[Any] = []
    for name, convert in fields:
        value = document.get(name)
        if value is not None:
            try:
                value = convert(value)
            except Misfit as misfit:
                raise misfit.within(name) from None
        row.append(value)
    return row


def converter(kind: pa.DataType) -> Convert:
    """The function that converts a value to a type."""
    if pa.types.is_signed_integer(kind):
        return _whole(spark_sql(kind), 1 << (kind.bit_width - 1))
    if pa.types.is_nested(kind):
        return _container(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    return _SIMPLE[kind]


def _container(kind: pa.DataType) -> Convert:
    if pa.types.is_struct(kind):
        fields = [(field.name, converter(field.type)) for field in kind]
        names = [name for name, _ in fields]
        return lambda value: dict(zip(names, row_of(value, fields), strict=True))
    if pa.types.is_list(kind):
        of_element = converter(kind.value_type)

        def array(value: Any) -> list[Any]:
            if type(value) is not list:
                raise wrong_type("an array", value)
            return [_inside(f"[{at}]", element, of_element) for at, element in enumerate(value)]

        return array
    of_value = converter(kind.item_type)

    def pairs(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise wrong_type("an object", value)
        return [(text(name), _inside(name, each, of_value)) for name, each in value.items()]

    return pairs


def _inside(where: str, value: Any, convert: Convert) -> Any:
    if value is None:
        return None
    try:
        return convert(value)
    except Misfit as misfit:
        raise misfit.within(where) from None


def _whole(name: str, bound: int) -> Convert:
    def convert(value: Any) -> int:
        if type(value) is not int:
            raise wrong_type("a whole number", value)
        if not -bound <= value < bound:
            raise Misfit(TOO_LARGE.format(name))
        return value

    return convert


def _double(value: Any) -> float:
    if type(value) not in (int, float, Decimal):
        raise wrong_type("a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number):
        raise Misfit("not a number" if number != number else TOO_LARGE.format("double"))
    return number


def _float(value: Any) -> float:
    number = _double(value)
    try:
        struct.pack("<f", number)  # without "<" it gives infinity
    except OverflowError:
        raise Misfit(TOO_LARGE.format("float")) from None
    return number


def _decimal(kind: pa.DataType) -> Convert:
    exact = Context(prec=kind.precision, Emax=999_999, Emin=-999_999, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal:
        if type(value) not in (int, float, Decimal):
            raise wrong_type("a number", value)
        try:
            if type(value) is float and not isfinite(value):
                raise Misfit("not a finite number")
            return Decimal(value).quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            raise Misfit(f"a number with more digits than {spark_sql(kind)}") from None

    return convert


def text(value: Any) -> str:
    """A string that UTF-8 can say."""
    if type(value) is not str:
        raise wrong_type("a string", value)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise Misfit("a string with half of a surrogate pair") from None
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise wrong_type("true or false", value)
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes:
        raise wrong_type("bytes", value)
    return value


def _date(value: Any) -> date:
    if type(value) is date:
        return value
    try:
        if _DATE.fullmatch(text(value)):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise Misfit("expected a date such as 2026-03-01")


def _instant(value: Any) -> datetime:
    try:
        if type(value) is datetime and value.tzinfo is not None:
            return value.astimezone(UTC)
        if _INSTANT.fullmatch(text(value)):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Misfit("expected an instant such as 2026-03-01T14:03:00Z")


_SIMPLE: Final[dict[pa.DataType, Convert]] = {
    STRING: text,
    BINARY: _bytes,
    pa.bool_(): _truth,
    pa.float32(): _float,
    pa.float64(): _double,
    pa.date32(): _date,
    TIMESTAMP: _instant,
}


def wrong_type(expected: str, value: Any) -> Misfit:
    """The misfit of a value of another type."""
    return Misfit(f"expected {expected}, found {_FOUND.get(type(value), 'a number')}")
