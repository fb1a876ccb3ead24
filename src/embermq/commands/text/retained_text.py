"""Retained messages as text: a line of columns for people, a line of JSON for programs, and back from there."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from embermq.broker.operator import wrong_topic_name
from embermq.commands.output import (
    Column,
    fitted,
    json_line,
    printable,
    printable_bytes,
    shortened,
    size_text,
    table_line,
    text_or_base64,
)
from embermq.commands.text.property_text import base64_of, properties_from, properties_object, properties_text
from embermq.instants import utc_text
from embermq.protocol.message_expiry import message_expires_us, with_remaining_expiry
from embermq.protocol.mqtt.message_fields import message_fields
from embermq.protocol.mqtt.properties import is_utf8
from embermq.protocol.packets import Publish
from embermq.store.interface import Retained, RetainedChange

PREVIEW_CHARACTERS: Final = 60
PREVIEW_BYTES: Final = 4 * PREVIEW_CHARACTERS
"""Enough bytes for PREVIEW_CHARACTERS characters: one has at most 4 bytes in UTF-8."""
COLUMNS: Final = (
    Column("time (UTC)", len("2026-01-31T14:03:07.250000Z")),
    Column("QoS", 3, right=True),
    Column("size", 9, right=True),
    Column("topic"),
    Column("payload"),
)
TOPIC_WIDTH_MAX: Final = 48
"""A longer topic name moves the rest of its line."""


def columns_for(topic_names: Iterable[str]) -> Sequence[Column]:
    """The columns, wide enough for the first topic names."""
    return fitted(COLUMNS, "topic", map(printable, topic_names), TOPIC_WIDTH_MAX)


def as_line(retained: Retained, payload_bytes: int, columns: Sequence[Column] = COLUMNS) -> str:
    """A message as one line of a table."""
    payload = printable_bytes(retained.payload)
    if len(payload) > PREVIEW_CHARACTERS or payload_bytes > len(retained.payload):
        payload = f"{payload[:PREVIEW_CHARACTERS]}…"
    properties = properties_text(retained.properties)
    if properties:
        payload = f"{payload}  {printable(properties)}"
    time, size = utc_text(retained.timestamp_us), size_text(payload_bytes)
    return table_line(columns, (time, str(retained.qos), size, printable(retained.topic_name), payload))


def as_json(retained: Retained, now_us: int) -> str:
    """A message as one line of JSON: its payload as text if it is UTF-8, otherwise as `payload_base64`.

    Its Message Expiry Interval is what is left of it at an instant, as if it were delivered then.
    """
    shown: dict[str, Any] = {"topic": retained.topic_name} | text_or_base64("payload", retained.payload)
    shown |= {
        "qos": retained.qos,
        "timestamp": utc_text(retained.timestamp_us),
        "client_id": retained.client_id,
        "offset": retained.offset,
    }
    expires_us = message_expires_us(retained.properties, retained.timestamp_us)
    shown |= properties_object(with_remaining_expiry(retained.properties, expires_us, now_us))
    return json_line(shown)


def change_line(change: RetainedChange) -> str:
    """A change of a topic's retained message as one line."""
    size, payload = "", "(cleared)"
    if change.message is not None:
        size = size_text(len(change.message.payload))
        payload = shortened(printable_bytes(change.message.payload[:PREVIEW_BYTES]), PREVIEW_CHARACTERS)
    return f"{utc_text(change.timestamp_us)}  {change.offset:>12}  {size:>9}  {payload}"


def change_object(change: RetainedChange) -> dict[str, Any]:
    """The same for JSON; without `payload` it was cleared, or expired."""
    shown: dict[str, Any] = {"timestamp": utc_text(change.timestamp_us), "offset": change.offset}
    if change.message is not None:
        shown |= text_or_base64("payload", change.message.payload)
        shown |= {"qos": change.message.qos, "client_id": change.message.client_id}
    return shown


def from_json(line: bytes) -> Publish:
    """The message of a line that `as_json` wrote, or one with a topic and a payload at least.

    Raises a `ValueError` that says what was expected. Timestamp, client id and offset of the line are ignored: the
    message is retained as a new one.
    """
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):  # the second: nested too deeply
        raise ValueError("expected a JSON object") from None
    if not isinstance(given, dict):
        raise ValueError("expected a JSON object")
    topic_name = given.get("topic")
    if not isinstance(topic_name, str):
        raise ValueError("expected a topic")
    wrong = wrong_topic_name(topic_name)
    if wrong:
        raise ValueError(f"expected a topic name: {wrong}")
    if ("payload" in given) == ("payload_base64" in given):
        raise ValueError("expected payload or payload_base64")
    payload = _text(given, "payload") if "payload" in given else base64_of(given, "payload_base64")
    if not payload:
        raise ValueError("expected a payload that is not empty")
    qos = given.get("qos", 0)
    if type(qos) is not int or qos not in (0, 1, 2):
        raise ValueError("expected qos 0, 1 or 2")
    properties = properties_from(given)
    if properties and message_fields(properties).get("payload_format") == 1 and not is_utf8(payload):
        raise ValueError("expected a payload that is UTF-8, as payload_format 1 says")
    return Publish(topic_name, payload, qos, True, False, 0, properties)


def _text(given: dict[str, Any], key: str) -> bytes:
    value = given[key]
    try:
        if isinstance(value, str):
            return value.encode()
    except UnicodeEncodeError:
        pass
    raise ValueError(f"expected {key} as a text")
