"""The properties of a message as JSON and as text, and back from JSON (MQTT 5)."""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, Final

from embermq.protocol.message_fields import (
    MESSAGE_FIELDS,
    USER_PROPERTIES,
    FieldValue,
    message_fields,
    message_properties,
)

_CORRELATION_DATA: Final = "correlation_data"
_CORRELATION_DATA_BASE64: Final = "correlation_data_base64"


def properties_object(properties: bytes) -> dict[str, Any]:
    """Properties as members of a JSON object: `properties`, or `properties_base64` if they cannot be read."""
    if not properties:
        return {}
    try:
        fields = message_fields(properties)
    except ValueError:
        return {"properties_base64": b64encode(properties).decode()}
    return {"properties": dict(_shown(name, value) for name, value in fields.items())}


def _shown(name: str, value: FieldValue) -> tuple[str, Any]:
    if isinstance(value, list):
        return name, [{"name": key, "value": text} for key, text in value]
    if not isinstance(value, bytes):
        return name, value
    try:
        return name, value.decode()
    except UnicodeDecodeError:
        return _CORRELATION_DATA_BASE64, b64encode(value).decode()


def properties_text(properties: bytes) -> str:
    """Properties on one line, in brackets; empty if there are none. User properties stand by their own names."""
    shown: list[str] = []
    for name, value in properties_object(properties).get("properties", {}).items():
        if name == USER_PROPERTIES:
            shown += [f"{pair['name']}={pair['value']}" for pair in value]
        else:
            shown.append(f"{name}={value}")
    return f"[{', '.join(shown)}]" if shown else ""


def properties_from(given: Mapping[str, Any]) -> bytes:
    """The properties in an object that has what `properties_object` returns.

    Raises a `ValueError` that says what was expected.
    """
    if "properties_base64" in given:
        return _checked(message_fields(_base64(given, "properties_base64")))
    found = given.get("properties", {})
    if not isinstance(found, dict):
        raise ValueError("expected properties as an object")
    unknown = found.keys() - {*MESSAGE_FIELDS, _CORRELATION_DATA_BASE64}
    if unknown:
        raise ValueError(f"expected properties among {', '.join(MESSAGE_FIELDS)}, not {min(unknown)}")
    fields: dict[str, FieldValue] = {name: found[name] for name in MESSAGE_FIELDS if name in found}
    if _CORRELATION_DATA_BASE64 in found:
        fields[_CORRELATION_DATA] = _base64(found, _CORRELATION_DATA_BASE64)
    elif _CORRELATION_DATA in found:
        text = found[_CORRELATION_DATA]
        if not isinstance(text, str):
            raise ValueError("expected correlation_data as a text")
        fields[_CORRELATION_DATA] = text.encode()
    if USER_PROPERTIES in found:
        fields[USER_PROPERTIES] = _pairs(found[USER_PROPERTIES])
    return _checked(fields)


def _checked(fields: Mapping[str, FieldValue]) -> bytes:
    for name in ("expiry", "payload_format"):
        if name in fields and type(fields[name]) is not int:
            raise ValueError(f"expected {name} as a number")
    for name in ("content_type", "response_topic"):
        if not isinstance(fields.get(name, ""), str):
            raise ValueError(f"expected {name} as a text")
    return message_properties(fields)


def _pairs(given: Any) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for pair in given if isinstance(given, list) else [None]:
        if not isinstance(pair, dict) or not all(isinstance(pair.get(key), str) for key in ("name", "value")):
            raise ValueError('expected user_properties as a list of {"name": ..., "value": ...}')
        pairs.append((pair["name"], pair["value"]))
    return pairs


def _base64(given: Mapping[str, Any], key: str) -> bytes:
    value = given[key]
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        pass
    raise ValueError(f"expected {key} as base64")
