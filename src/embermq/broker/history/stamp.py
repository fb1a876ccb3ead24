"""Messages of the past as they are sent: without an expiry that has passed, and for MQTT 5 with their offset and time.

Owns: the names and the form of the User Properties (5.0, 3.3.2.3.7) that a history subscription adds.
"""

from typing import Final

from embermq.instants import utc_text
from embermq.protocol.mqtt.fields import text_field
from embermq.protocol.packets import Publish

OFFSET_NAME: Final = "ember-offset"
TIME_NAME: Final = "ember-time"

_USER_PROPERTY: Final = b"\x26"
_OFFSET: Final = _USER_PROPERTY + text_field(OFFSET_NAME)
_TIME: Final = _USER_PROPERTY + text_field(TIME_NAME)
_EXPIRY_BYTES: Final = 5  # the Message Expiry Interval is the first property of a message that has one


def stamped(message: Publish, offset: int, timestamp_us: int, now_us: int, has_properties: bool) -> Publish:
    """A message for a history subscription.

    One that has expired since is sent all the same: the client asks for what was. Then it has no Message Expiry
    Interval, which could only be 0. `has_properties`: the client gets properties; offset 0: the message has none.
    """
    properties = message.properties
    expires_us = message.expires_us
    if 0 < expires_us <= now_us:
        properties = properties[_EXPIRY_BYTES:]
        expires_us = 0
    if has_properties and offset:
        properties += _OFFSET + text_field(str(offset)) + _TIME + text_field(utc_text(timestamp_us))
    if properties is message.properties:
        return message
    return Publish(message.topic_name, message.payload, message.qos, message.retain, False, 0, properties, expires_us)
