"""Reading JSON documents strictly: RFC 8259 and no more. Spark's own parser and Python's accept much more.

Owns: which payload is a JSON document, or a number as text.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from embermq.lake.payloads.values import NOT_UTF8, TOO_LARGE, Misfit

_NUMBER: Final = re.compile(r"[ \t\n\r]*(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)[ \t\n\r]*", re.ASCII)


def json_documents(has_decimals: bool) -> Callable[[bytes], Any]:
    """A function that gives the one document that a payload is."""
    decode = _decoder(has_decimals).decode
    return lambda payload: _document(payload, decode)


def number_document(payload: bytes) -> dict[str, float]:
    """A number as text, as `spark.jobs.typed_tables` reads it with Spark's own functions."""
    try:
        found = _NUMBER.fullmatch(payload.decode("utf-8"))
    except UnicodeDecodeError:
        raise Misfit(NOT_UTF8) from None
    if found is None:
        raise Misfit("not a number", "value")
    value = float(found[1])
    if value in (float("inf"), float("-inf")):
        raise Misfit(TOO_LARGE.format("double"), "value")
    return {"value": value}


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


def _decoder(has_decimals: bool) -> json.JSONDecoder:
    """Decodes RFC 8259 and no more: Python's own also takes NaN and Infinity, and the last of equal names."""
    return json.JSONDecoder(
        object_pairs_hook=unique_names,
        parse_constant=_refuse_constant,
        parse_float=Decimal if has_decimals else None,
    )


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these names and values. Misfit if a name is there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Misfit("a name that is there twice", f"{twice}".encode("utf-8", "replace").decode())
    return found


def _refuse_constant(name: str) -> object:
    raise Misfit(f"not a JSON document: {name} is not a number")
