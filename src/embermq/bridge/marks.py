"""The mark of a message that has passed a bridge: a user property with the id of the server that has sent it (MQTT 5).

Owns: how it is written and found. A message that comes with the own id has gone in a circle.
"""

from typing import Final, final

from embermq.protocol.mqtt.properties import write_properties

NAME: Final = "ember-bridge"
MARKS_MAX: Final = 16
"""A message that has passed so many servers is not sent further."""
# A user property up to the value's length, and that: every id has the same length.
_ANY: Final = b"\x26" + len(NAME).to_bytes(2, "big") + NAME.encode() + b"\x00"


@final
class Marks:
    """The marks as one server writes them."""

    __slots__ = ("own",)

    def __init__(self, server_id: str) -> None:
        self.own: Final = write_properties([("user_property", (NAME, server_id))])

    def is_own(self, properties: bytes) -> bool:
        """Whether a message has passed this server."""
        return bool(properties) and self.own in properties

    def are_too_many(self, properties: bytes) -> bool:
        return bool(properties) and properties.count(_ANY) >= MARKS_MAX
