"""Avro: payloads that are one record of a schema, or of the schema whose number the header of a registry says.

Owns: which schemas are accepted, and the header: a zero byte, and four bytes with its number, big-endian.
fastavro reads a record within itself by recursion without a bound, and an array of items without bytes up to any
length. Both can end the process that reads, so a schema that has such a type is refused.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from embermq.lake.errors import LakeError
from embermq.lake.payloads.values import NOT_UTF8, Misfit

SCHEMAS_MAX: Final = 10_000
SCHEMA_BYTES_MAX: Final = 1 << 20
_HEADER_BYTES: Final = 5
_SMALLEST: Final = {"null": 0, "float": 4, "double": 8}
"""The fewest bytes of a value; one for the other types."""


def read_schemas(place: Path) -> tuple[tuple[int | None, str], ...]:
    """The schema of a file, or the numbered ones of a directory. LakeError if one cannot be used."""
    if not place.is_dir():
        return ((None, _read_schema(place)),)
    found = sorted(path for path in place.glob("*.avsc") if path.stem.isascii() and path.stem.isdigit())
    if not 1 <= len(found) <= SCHEMAS_MAX:
        raise LakeError(f"{place}: expected 1 to {SCHEMAS_MAX} schemas as NUMBER.avsc, found {len(found)}")
    return tuple((int(path.stem), _read_schema(path)) for path in found)


def _read_schema(path: Path) -> str:
    try:
        if path.stat().st_size > SCHEMA_BYTES_MAX:
            raise LakeError(f"{path}: expected a schema of at most {SCHEMA_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8")
        _parsed(text)
    except OSError as error:
        raise LakeError(f"{path}: {error.strerror}") from None
    except LakeError as error:
        raise LakeError(f"{path}: {error}") from None
    return text


@lru_cache(SCHEMAS_MAX)
def _parsed(text: str) -> Any:
    """A schema as fastavro takes it. LakeError if it is not one, or not one that is safe to read with."""
    import fastavro

    try:
        schema = fastavro.parse_schema(json.loads(text))
        whole = fastavro.parse_schema(json.loads(text), expand=True)  # not to read with: named types are repeated
    except Exception as error:  # whatever fastavro makes of a wrong schema
        raise LakeError(f"not an Avro schema ({error or type(error).__name__})") from None
    if not isinstance(whole, dict) or whole.get("type") != "record":
        raise LakeError("expected the schema of a record")
    _smallest_bytes(whole, {})
    return schema


def _smallest_bytes(schema: Any, open_names: Mapping[str, None]) -> int:
    """The fewest bytes of a value of a schema. LakeError if it holds itself, or an array of items without bytes."""
    if isinstance(schema, list):
        return 1 + min((_smallest_bytes(branch, open_names) for branch in schema), default=0)
    if isinstance(schema, str):
        if schema in open_names:
            raise LakeError(f"the record {schema} is within itself, which is not read")
        return _SMALLEST.get(schema, 1)
    kind = schema["type"]
    if kind in ("record", "error"):
        inside = {**open_names, schema["name"]: None}
        return sum(_smallest_bytes(field["type"], inside) for field in schema["fields"])
    if kind == "array":
        if _smallest_bytes(schema["items"], open_names) == 0:
            raise LakeError("an array of items without bytes, which is not read")
        return 1
    if kind == "map":
        _smallest_bytes(schema["values"], open_names)
        return 1
    if kind == "fixed":
        return int(schema["size"])
    return _smallest_bytes(kind, open_names) if isinstance(kind, (dict, list)) else _SMALLEST.get(kind, 1)


def avro_documents(schemas: tuple[tuple[int | None, str], ...]) -> Callable[[bytes], Any]:
    """A function that gives the one record that a payload is."""
    import fastavro

    known = {number: _parsed(text) for number, text in schemas}
    has_header = None not in known

    def document(payload: bytes) -> Any:
        number = None
        if has_header:
            if len(payload) < _HEADER_BYTES or payload[0] != 0:
                raise Misfit("no header of a registry: a zero byte and the number of a schema")
            number = int.from_bytes(payload[1:_HEADER_BYTES], "big")
            if number not in known:
                raise Misfit(f"the schema {number} is not known")
            payload = payload[_HEADER_BYTES:]
        stream = BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(stream, known[number])
        except UnicodeDecodeError:
            raise Misfit(NOT_UTF8) from None
        except Exception as error:  # it raises what Python raises: EOFError, IndexError, OverflowError, ...
            raise Misfit(f"not a record of the schema ({error or type(error).__name__})") from None
        if stream.tell() < len(payload):
            raise Misfit("bytes after the record")
        return found

    return document
