"""The properties of a message as fields with names, for tables (5.0, 3.3.2.3).

Owns: the name of each field, which is the same in the lake's columns and in the sink's; and the way back.
Never: what a field causes.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.fields import Fields
from embermq.protocol.mqtt.properties import CLIENT, Properties, read_properties, write_properties
from embermq.protocol.packets import PUBLISH

FieldValue: TypeAlias = int | str | bytes | list[tuple[str, str]]

USER_PROPERTIES: Final = "user_properties"

# Property name -> field name. The Message Expiry Interval is first, as in a message that the server has taken.
_FIELD_OF: Final = {
    "message_expiry_interval": "expiry",
    "payload_format_indicator": "payload_format",
    "content_type": "content_type",
    "response_topic": "response_topic",
    "correlation_data": "correlation_data",
    "user_property": USER_PROPERTIES,
}
MESSAGE_FIELDS: Final = tuple(_FIELD_OF.values())


def message_fields(properties: bytes) -> dict[str, FieldValue]:
    """The fields that a message has: `expiry` in seconds, `user_properties` as pairs in their order.

    Raises a `ValueError` if these are not properties of a message.
    """
    try:
        found = read_properties(Fields(properties, 0, len(properties)), PUBLISH, CLIENT)
    except PeerError as error:
        raise ValueError(error.detail) from None
    fields: dict[str, FieldValue] = {}
    pairs: list[tuple[str, str]] = []
    for name, value in found:
        if isinstance(value, tuple):
            pairs.append(value)
            fields[USER_PROPERTIES] = pairs
        elif name in _FIELD_OF:
            fields[_FIELD_OF[name]] = value
        else:
            raise ValueError(f"property {name} belongs to a connection, not to a message")
    return fields


def message_properties(fields: Mapping[str, FieldValue]) -> bytes:
    """The properties with these fields. Raises a `ValueError` if MQTT 5 cannot express one."""
    found: Properties = []
    for property_name, name in _FIELD_OF.items():
        value = fields.get(name)
        if isinstance(value, list):
            found += [(property_name, pair) for pair in value]
        elif value is not None:
            found.append((property_name, value))
    try:
        properties = write_properties(found)
    except (OverflowError, TypeError, UnicodeEncodeError) as error:
        raise ValueError(f"no value of a property: {error}") from None
    message_fields(properties)
    return properties
