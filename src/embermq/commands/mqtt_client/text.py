"""A message as text: a line for people, JSON for programs, and a format of the user's own."""

import re
from datetime import UTC, datetime
from typing import Any, Final

from embermq.commands.output import json_line, printable, printable_bytes, text_or_base64
from embermq.commands.text.property_text import properties_object
from embermq.errors import ConfigError
from embermq.instants import microseconds, utc_text
from embermq.protocol.packets import Publish

_FIELD: Final = re.compile(r"%(.)|\\([nt0\\])", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


def as_object(message: Publish) -> dict[str, Any]:
    """A message as a JSON object, with its properties as `ember retained` and `ember log` show them."""
    shown: dict[str, Any] = {"topic": message.topic_name} | text_or_base64("payload", message.payload)
    shown |= {"qos": message.qos, "retain": message.retain, "timestamp": _now()}
    return shown | properties_object(message.properties)


def as_line(message: Publish) -> str:
    """A message as a line: topic and payload."""
    return f"{printable(message.topic_name)}  {printable_bytes(message.payload)}"


def formatted(format: str, message: Publish) -> str:
    """A message as the user's format says; what comes from a client is made printable."""

    def field(found: re.Match[str]) -> str:
        if found[2] is not None:
            return _ESCAPES[found[2]]
        match found[1]:
            case "t":
                return printable(message.topic_name)
            case "p":
                return printable_bytes(message.payload)
            case "x":
                return message.payload.hex()
            case "l":
                return str(len(message.payload))
            case "q":
                return str(message.qos)
            case "r":
                return str(int(message.retain))
            case "T":
                return _now()
            case "j":
                return json_line(as_object(message))
            case _:
                return "%"

    return _FIELD.sub(field, format)


def check_format(format: str) -> None:
    """ConfigError if a format has a field that does not exist."""
    wrong = [found[0] for found in _FIELD.finditer(format) if found[1] is not None and found[1] not in "tpxlqrTj%"]
    if wrong:
        raise ConfigError(f"--format: there is no field {wrong[0]}, expected one of %t, %p, %x, %l, %q, %r, %T, %j")


def _now() -> str:
    return utc_text(microseconds(datetime.now(UTC)))
