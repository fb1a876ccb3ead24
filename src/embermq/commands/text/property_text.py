"""The properties of a message as JSON and as text, and back from JSON (MQTT 5)."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, Final

from embermq.http.messages_json import PROPERTY_NAMES, shown_properties
from embermq.protocol.mqtt.message_fields import FieldValue, message_fields, message_properties

_NUMBERS: Final = {"message_expiry_interval": "expiry", "payload_format_indicator": "payload_format"}
_TEXTS: Final = ("content_type", "response_topic")


def properties_object(properties: bytes) -> dict[str, Any]:
    """Properties as members of a JSON object: `properties`, or `properties_base64` if they cannot be read."""
    if not properties:
        return {}
    shown = shown_properties(properties)
    return {"properties_base64": b64encode(properties).decode()} if shown is None else {"properties": shown}


def properties_text(properties: bytes) -> str:
    """Properties on one line, in brackets; empty if there are none. User properties stand by their own names."""
    shown: list[str] = []
    for name, value in properties_object(properties).get("properties", {}).items():
        if name == "user_properties":
            shown += [f"{key}={text}" for key, text in value]
        else:
            shown.append(f"{name}={value}")
    return f"[{', '.join(shown)}]" if shown else ""


def properties_from(given: Mapping[str, Any]) -> bytes:
    """The properties in an object that has what `properties_object` returns.

    Raises a `ValueError` that says what was expected.
    """
    if "properties_base64" in given:
        return message_properties(message_fields(base64_of(given, "properties_base64")))
    found = given.get("properties", {})
    if not isinstance(found, dict):
        raise ValueError("expected properties as an object")
    unknown = found.keys() - set(PROPERTY_NAMES)
    if unknown:
        raise ValueError(f"expected properties among {', '.join(PROPERTY_NAMES)}, not {min(unknown)}")
    fields: dict[str, FieldValue] = {}
    for name, value in found.items():
        if name in _NUMBERS:
            if type(value) is not int:
                raise ValueError(f"expected {name} as a number")
            fields[_NUMBERS[name]] = value
        elif name == "user_properties":
            fields[name] = _pairs(value)
        elif name == "correlation_data_base64":
            fields["correlation_data"] = base64_of(found, name)
        elif not isinstance(value, str):
            raise ValueError(f"expected {name} as a text")
        else:
            fields[name] = value if name in _TEXTS else value.encode()
    return message_properties(fields)


def _pairs(given: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for pair in given if isinstance(given, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise ValueError("expected user_properties as a list of pairs of texts")
        pairs.append((pair[0], pair[1]))
    return pairs


def base64_of(given: Mapping[str, Any], key: str) -> bytes:
    """The bytes that a member of a JSON object has as base64; ValueError if it has none."""
    value = given[key]
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        pass
    raise ValueError(f"expected {key} as base64")
