"""Message expiry (5.0, section 3.3.2.3.3): when a message expires, and what is left of its interval.

Owns: reading and rewriting the Message Expiry Interval of a message that the server has taken. There it is the first of
the message's properties, so that the others need not be read.
"""

from typing import Final

_MESSAGE_EXPIRY_INTERVAL: Final = 0x02
_EXPIRY_BYTES: Final = 5  # the identifier and the interval


def message_expires_us(properties: bytes, received_us: int) -> int:
    """When a message expires that was received at an instant (5.0, 3.3.2.3.3); 0: never.

    Only the first property is read: in a message that the server has taken, the interval stands there.
    """
    if len(properties) < _EXPIRY_BYTES or properties[0] != _MESSAGE_EXPIRY_INTERVAL:
        return 0
    return received_us + int.from_bytes(properties[1:_EXPIRY_BYTES], "big") * 1_000_000


def with_remaining_expiry(properties: bytes, expires_us: int, now_us: int) -> bytes:
    """The properties of a message with what is left of its interval (5.0, MQTT-3.3.2-6), rounded up to a second.

    Never more than it had: `now_us` may be a little before the instant at which the message was taken.
    """
    if not expires_us or not properties or properties[0] != _MESSAGE_EXPIRY_INTERVAL:
        return properties
    received_s = int.from_bytes(properties[1:_EXPIRY_BYTES], "big")
    interval_s = min(max(0, -((now_us - expires_us) // 1_000_000)), received_s)
    return properties[:1] + interval_s.to_bytes(4, "big") + properties[_EXPIRY_BYTES:]
