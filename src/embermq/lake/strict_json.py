"""Reading JSON documents strictly: a payload fits the schema of its typed table exactly, or is rejected with a reason.

Owns: which documents fit which type (RFC 8259; Spark's own parser accepts much more), and the reason when one does not.
Never: an exception because of a payload. It runs in Spark's Python workers, over Arrow batches.
"""

import json
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isinf
from typing import Any, Final

import pyarrow as pa

from embermq.lake.schema import STRING, TIMESTAMP, spark_sql

NOT_UTF8: Final = "not UTF-8"
MISFIT_FIELDS: Final = (pa.field("field", STRING), pa.field("reason", STRING))
TOO_LARGE: Final = "a number that is too large for {}"

Convert = Callable[[Any], Any]
"""Turns a value of a parsed document into the value of a column; raises Misfit. It is not called for null."""

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_FOUND: Final = {str: "a string", bool: "true or false", dict: "an object", list: "an array", type(None): "null"}


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


@dataclass(frozen=True)
class DocumentReader:
    """Reads payloads as documents of one schema. Spark pickles it for its workers."""

    schema: pa.Schema

    def read(self, payloads: Iterable[bytes]) -> tuple[list[list[Any]], list[str | None], list[str | None]]:
        """The values of each column, the field that does not fit, and the reason; the last two are null if all fits."""
        decode = _decoder(has_decimals="decimal" in spark_sql(pa.struct(self.schema))).decode
        fields = [(field.name, _converter(field.type)) for field in self.schema]
        empty = [None] * len(fields)
        rows: list[Sequence[Any]] = []
        misfit_fields: list[str | None] = []
        reasons: list[str | None] = []
        for payload in payloads:
            try:
                rows.append(_row(_document(payload, decode), fields))
            except Misfit as misfit:
                rows.append(empty)
                misfit_fields.append(misfit.field or None)
                reasons.append(misfit.reason)
            else:
                misfit_fields.append(None)
                reasons.append(None)
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in fields]
        return columns, misfit_fields, reasons

    @property
    def result(self) -> pa.Schema:
        """The fields of what `read_array` returns for each payload."""
        return pa.schema([pa.field("parsed", pa.struct(self.schema)), *MISFIT_FIELDS])

    def read_array(self, payloads: pa.Array) -> pa.Array:
        """The values, or the field and the reason, of each payload."""
        columns, misfit_fields, reasons = self.read(payloads.to_pylist())
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        values = pa.StructArray.from_arrays(arrays, fields=list(self.schema))
        texts = [pa.array(column, STRING) for column in (misfit_fields, reasons)]
        return pa.StructArray.from_arrays([values, *texts], fields=list(self.result))


def _document(payload: bytes, decode: Callable[[str], Any]) -> Any:
    """The one JSON document that a payload is."""
    try:
        return decode(payload.decode("utf-8"))
    except UnicodeDecodeError:
        raise Misfit(NOT_UTF8) from None
    except json.JSONDecodeError as error:
        raise Misfit(f"not a JSON document: {error.msg} (character {error.pos})") from None
    except RecursionError:
        raise Misfit("nested too deeply") from None
    except (ValueError, ArithmeticError):  # Python does not read a number of thousands of digits
        raise Misfit("a number with too many digits") from None


def _row(document: Any, fields: Sequence[tuple[str, Convert]]) -> list[Any]:
    """The values of an object's fields, None for those that it lacks."""
    if type(document) is not dict:
        raise _wrong_type("an object", document)
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


def _decoder(has_decimals: bool) -> json.JSONDecoder:
    """Decodes RFC 8259 and no more: Python's own also takes NaN and Infinity, and the last of equal names."""
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_constant=_refuse_constant,
        parse_float=Decimal if has_decimals else None,
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Misfit("a name that is there twice", twice.encode("utf-8", "replace").decode())
    return found


def _refuse_constant(name: str) -> object:
    raise Misfit(f"not a JSON document: {name} is not a number")


def _converter(kind: pa.DataType) -> Convert:
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
        fields = [(field.name, _converter(field.type)) for field in kind]
        names = [name for name, _ in fields]
        return lambda value: dict(zip(names, _row(value, fields), strict=True))
    if pa.types.is_list(kind):
        of_element = _converter(kind.value_type)

        def array(value: Any) -> list[Any]:
            if type(value) is not list:
                raise _wrong_type("an array", value)
            return [_inside(f"[{at}]", element, of_element) for at, element in enumerate(value)]

        return array
    of_value = _converter(kind.item_type)

    def pairs(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise _wrong_type("an object", value)
        return [(_text(name), _inside(name, each, of_value)) for name, each in value.items()]

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
            raise _wrong_type("a whole number", value)
        if not -bound <= value < bound:
            raise Misfit(TOO_LARGE.format(name))
        return value

    return convert


def _double(value: Any) -> float:
    if type(value) not in (int, float, Decimal):
        raise _wrong_type("a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if isinf(number):
        raise Misfit(TOO_LARGE.format("double"))
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
        if type(value) not in (int, Decimal):
            raise _wrong_type("a number", value)
        try:
            return Decimal(value).quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            raise Misfit(f"a number with more digits than {spark_sql(kind)}") from None

    return convert


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _wrong_type("a string", value)
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise Misfit("a string with half of a surrogate pair") from None
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong_type("true or false", value)
    return value


def _date(value: Any) -> date:
    try:
        if _DATE.fullmatch(_text(value)):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise Misfit("expected a date such as 2026-03-01")


def _instant(value: Any) -> datetime:
    try:
        if _INSTANT.fullmatch(_text(value)):
            return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise Misfit("expected an instant such as 2026-03-01T14:03:00Z")


_SIMPLE: Final[dict[pa.DataType, Convert]] = {
    STRING: _text,
    pa.bool_(): _truth,
    pa.float32(): _float,
    pa.float64(): _double,
    pa.date32(): _date,
    TIMESTAMP: _instant,
}


def _wrong_type(expected: str, value: Any) -> Misfit:
    return Misfit(f"expected {expected}, found {_FOUND.get(type(value), 'a number')}")
