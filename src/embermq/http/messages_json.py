"""Messages as JSON: retained messages and records of the log, written and read.

Owns: the fields of a message in answers, and the quick way to write one for streams of millions.
`resources/message_models` says the same fields for the OpenAPI document.
"""

from base64 import b64decode, b64encode
from datetime import datetime
from json import dumps
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final, final

from embermq.instants import EPOCH, microseconds
from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.fields import Fields
from embermq.protocol.mqtt.properties import EITHER, read_properties
from embermq.protocol.packets import PUBLISH
from embermq.store.interface import Retained

PROPERTY_NAMES: Final = (
    "payload_format_indicator",
    "message_expiry_interval",
    "content_type",
    "response_topic",
    "correlation_data",
    "correlation_data_base64",
    "user_properties",
)
"""What a message's properties are called in JSON."""


@final
class InstantTexts:
    """Instants as text, UTC; many that follow one another are of the same second."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def text(self, instant_us: int) -> str:
        second = instant_us // 1_000_000
        if second != self._second:
            self._second = second
            self._text = datetime.fromtimestamp(second, EPOCH.tzinfo).strftime("%Y-%m-%dT%H:%M:%S")
        digits = str(1_000_000 + instant_us % 1_000_000)  # a format with leading zeros takes most of a line's time
        return f"{self._text}.{digits[1:]}Z"


_texts: Final = InstantTexts()


def beginning(payload: bytes, bytes_max: int | None) -> bytes:
    """At most so many bytes of a payload; text is not cut within a character."""
    if bytes_max is None or len(payload) <= bytes_max:
        return payload
    end = bytes_max
    while end > max(0, bytes_max - 3) and payload[end] & 0xC0 == 0x80:
        end -= 1
    return payload[:end]


def payload_json(payload: bytes) -> str:
    """The payload as a part of an object."""
    try:
        return f'"payload":{quoted(payload.decode())}'
    except UnicodeDecodeError:
        return f'"payload_base64":"{b64encode(payload).decode()}"'


def retained_json(retained: Retained, payload_bytes_max: int | None = None) -> str:
    """A retained message as a line of JSON; with a bound, only the beginning of its payload."""
    payload = beginning(retained.payload, payload_bytes_max)
    line = (
        f'{{"topic":{quoted(retained.topic_name)},{payload_json(payload)},"payload_bytes":{len(retained.payload)}'
        f',"qos":{retained.qos},"timestamp":"{_texts.text(retained.timestamp_us)}"'
        f',"client_id":{quoted(retained.client_id)},"offset":{retained.offset}'
    )
    if retained.expires_us:
        line += f',"expires":"{_texts.text(retained.expires_us)}"'
    if retained.properties:
        line += f",{properties_json(retained.properties)}"
    return line + "}"


def retained_from(found: dict[str, Any]) -> Retained:
    """The message of an object that `retained_json` made."""
    expires = found.get("expires")
    return Retained(
        found["topic"].encode(),
        payload_of(found),
        found["qos"],
        b64decode(found.get("properties_base64", "")),
        found["offset"],
        microseconds(datetime.fromisoformat(found["timestamp"])),
        found["client_id"].encode(),
        microseconds(datetime.fromisoformat(expires)) if expires else 0,
    )


def payload_of(found: dict[str, Any]) -> bytes:
    text = found.get("payload")
    return text.encode() if text is not None else b64decode(found["payload_base64"])


def properties_json(properties: bytes) -> str:
    """The properties as parts of an object: as they are and, if they can be read, by name."""
    raw = f'"properties_base64":"{b64encode(properties).decode()}"'
    shown = shown_properties(properties)
    return f'{raw},"properties":{dumps(shown, separators=(",", ":"))}' if shown is not None else raw


def shown_properties(properties: bytes) -> dict[str, Any] | None:
    """The properties of a message by name; None if they cannot be read."""
    try:
        found = read_properties(Fields(properties, 0, len(properties)), PUBLISH, EITHER)
    except PeerError:
        return None
    shown: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    for name, value in found:
        if isinstance(value, tuple):
            pairs.append(value)
        elif isinstance(value, bytes):
            try:
                shown[name] = value.decode()
            except UnicodeDecodeError:
                shown[f"{name}_base64"] = b64encode(value).decode()
        elif name in PROPERTY_NAMES:
            shown[name] = value
    if pairs:
        shown["user_properties"] = pairs
    return shown
