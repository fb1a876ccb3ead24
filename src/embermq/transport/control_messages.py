"""Messages as JSON objects on the control socket, in both directions.

Owns: the fields of an object, for the server that writes it and the command that reads it.
Never: the text that a person or a file gets; `embermq.commands.retained_text` writes that.
"""

from base64 import b64decode, b64encode
from typing import Any

from embermq.protocol.packets import Publish
from embermq.store.interface import Retained


def retained_object(retained: Retained, payload_bytes_max: int | None) -> dict[str, Any]:
    """A retained message as the server sends it; with a bound, only the beginning of its payload."""
    payload = retained.payload if payload_bytes_max is None else retained.payload[:payload_bytes_max]
    found: dict[str, Any] = {
        "topic": retained.topic_name,
        "payload": b64encode(payload).decode(),
        "payload_bytes": len(retained.payload),
        "qos": retained.qos,
        "timestamp_us": retained.timestamp_us,
        "offset": retained.offset,
        "client_id": retained.client_id,
    }
    if retained.expires_us:
        found["expires_us"] = retained.expires_us
    if retained.properties:
        found["properties"] = b64encode(retained.properties).decode()
    return found


def retained_from(found: dict[str, Any]) -> Retained:
    """The message of an object that `retained_object` made."""
    return Retained(
        found["topic"],
        b64decode(found["payload"]),
        found["qos"],
        b64decode(found.get("properties", "")),
        found["offset"],
        found["timestamp_us"],
        found["client_id"],
        found.get("expires_us", 0),
    )


def set_request(message: Publish) -> dict[str, Any]:
    """The request that has the server retain a message."""
    request: dict[str, Any] = {
        "op": "set",
        "topic": message.topic_name,
        "payload": b64encode(message.payload).decode(),
        "qos": message.qos,
    }
    if message.properties:
        request["properties"] = b64encode(message.properties).decode()
    return request
