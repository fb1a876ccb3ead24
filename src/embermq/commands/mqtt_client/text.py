"""A message as text: a line for people, JSON for programs, and a format of the user's own."""

import re
from datetime import UTC, datetime
from typing import Any, Final

from embermq.commands.output import json_line, printable, printable_bytes, text_or_base64
from embermq.errors import ConfigError
from embermq.instants import microseconds, utc_text
from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.fields import Fields
from embermq.protocol.mqtt.properties import EITHER, Properties, read_properties
from embermq.protocol.packets import PUBLISH, Publish

_FIELD: Final = re.compile(r"%(.)|\\([nt0\\])", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


def properties_of(message: Publish) -> Properties:
    """The properties of a message (MQTT 5), as the wire has them."""
    try:
        return read_properties(Fields(message.properties, 0, len(message.properties)), PUBLISH, EITHER)
    except PeerError as error:
        raise ConfigError(f"the server sent properties that cannot be read: {error.detail}") from None


def as_object(message: Publish) -> dict[str, Any]:
    """A message as a JSON object."""
    shown: dict[str, Any] = {"topic": message.topic_name} | text_or_base64("payload", message.payload)
    shown |= {"qos": message.qos, "retain": message.retain, "timestamp": _now()}
    pairs = []
    for name, value in properties_of(message):
        if name == "user_property" and isinstance(value, tuple):
            pairs.append(list(value))
        elif isinstance(value, bytes):
            shown |= text_or_base64(name, value)
        elif name != "topic_alias":
            shown[name] = value
    if pairs:
        shown["user_properties"] = pairs
    return shown


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
