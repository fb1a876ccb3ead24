"""The schema of a typed table of documents, parsed from text such as "state string, tags array<string>".

Owns: the types that a column may have, and the sentence for a text that is not a schema.
Spark's own parser needs a running Java process, but the settings are checked before one is started. The types are
Arrow's; `schema` has their names in Spark.
"""

import re
from typing import Final, final

import pyarrow as pa

from embermq.lake.schema import BINARY, BOOLEAN, BYTE, LONG, STRING, TIMESTAMP

SIMPLE_TYPES: Final[dict[str, pa.DataType]] = {
    "string": STRING,
    "boolean": BOOLEAN,
    "binary": BINARY,
    "byte": BYTE,
    "tinyint": BYTE,
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": LONG,
    "bigint": LONG,
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
TYPE_NAMES: Final = f"{', '.join(SIMPLE_TYPES)}, decimal(p,s), array<...>, map<string,...> or struct<name: type, ...>"
DECIMAL_DIGITS_MAX: Final = 38
DEPTH_MAX: Final = 32

_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z0-9_]+)|`((?:[^`]|``)+)`|([<>(),:]))")
_NOT_IN_A_NAME: Final = frozenset(" ,;{}()\n\t=")
"""Delta Lake refuses them in the name of a column."""


class SchemaError(ValueError):
    """The text is not a schema; the message says what was expected, and where."""


def parse_schema(text: str) -> pa.Schema:
    """The columns that a text such as "a double, b array<string>" names."""
    parser = _Parser(text)
    fields = parser.fields(0)
    parser.end()
    return pa.schema(fields)


@final
class _Parser:
    """A recursive-descent parser over the tokens of a schema."""

    __slots__ = ("_text", "_at", "_token", "_is_quoted")

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._at = 0
        self._token = ""
        self._is_quoted = False
        self._advance()

    def fields(self, depth: int) -> list[pa.Field]:
        """`name type, name type, ...`, where a colon may stand between a name and its type."""
        found: list[pa.Field] = []
        while True:
            name = self._name()
            self._take(":")
            if name.lower() in (field.name.lower() for field in found):
                raise SchemaError(f"the column {name!r} is there twice")
            found.append(pa.field(name, self._type(depth)))
            if not self._take(","):
                return found

    def end(self) -> None:
        if self._token:
            raise self._unexpected("a comma or the end of the schema")

    def _type(self, depth: int) -> pa.DataType:
        if depth == DEPTH_MAX:
            raise SchemaError(f"more than {DEPTH_MAX} types within each other")
        kind = "" if self._is_quoted else self._token.lower()
        if kind not in (*SIMPLE_TYPES, "decimal", "array", "map", "struct"):
            raise self._unexpected(f"a type ({TYPE_NAMES})")
        self._advance()
        if kind in SIMPLE_TYPES:
            return SIMPLE_TYPES[kind]
        if kind == "decimal":
            return self._decimal()
        self._need("<")
        made: pa.DataType
        if kind == "array":
            made = pa.list_(pa.field("element", self._type(depth + 1)))
        elif kind == "struct":
            made = pa.struct(self.fields(depth + 1))
        else:
            if self._token.lower() != "string":
                raise self._unexpected("string: the names in a JSON object are strings")
            self._advance()
            self._need(",")
            made = pa.map_(STRING, self._type(depth + 1))
        self._need(">")
        return made

    def _decimal(self) -> pa.DataType:
        if not self._take("("):
            return pa.decimal128(10, 0)
        digits, places = self._whole(), 0
        if self._take(","):
            places = self._whole()
        self._need(")")
        if not (1 <= digits <= DECIMAL_DIGITS_MAX and places <= digits):
            raise SchemaError(
                f"decimal({digits},{places}): expected 1 to {DECIMAL_DIGITS_MAX} digits, and no more places than digits"
            )
        return pa.decimal128(digits, places)

    def _name(self) -> str:
        name = self._token
        if not (self._is_quoted or re.fullmatch(r"\w+", name)):
            raise self._unexpected("the name of a column")
        if not _NOT_IN_A_NAME.isdisjoint(name):
            raise SchemaError(f"the column {name!r}: expected a name without spaces and , ; {{ }} ( ) =")
        self._advance()
        return name

    def _whole(self) -> int:
        if not re.fullmatch(r"[0-9]{1,3}", self._token):
            raise self._unexpected("a whole number")
        number = int(self._token)
        self._advance()
        return number

    def _take(self, sign: str) -> bool:
        if self._token != sign or self._is_quoted:
            return False
        self._advance()
        return True

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(repr(sign))

    def _advance(self) -> None:
        rest = self._text[self._at :]
        found = _TOKEN.match(rest)
        if found is None:
            if rest.strip():
                raise SchemaError(f"{rest.strip()[0]!r} is in no schema")
            self._token, self._is_quoted = "", False
            return
        self._at += found.end()
        self._is_quoted = found[2] is not None
        self._token = found[2].replace("``", "`") if self._is_quoted else found[1] or found[3]

    def _unexpected(self, expected: str) -> SchemaError:
        return SchemaError(f"expected {expected}, found {repr(self._token) if self._token else 'the end'}")
