"""The properties and reason codes of MQTT 5.0 as tables, and the shortest packet around any property section.

`test_vectors_and_paho.py` compares the tables with another implementation of MQTT 5.
"""

from typing import Final, NamedTuple

from support.vectors.vector import CLIENT, EITHER, SERVER

Value = int | str | bytes | tuple[str, str]
Properties = list[tuple[int, Value]]


class Property(NamedTuple):
    """A property: where it may stand (2.2.2.2), and an example as value and as bytes."""

    name: str
    places: tuple[str, ...]
    example: Value
    hex: str

    @property
    def slug(self) -> str:
        return self.name.lower().replace(" ", "-")


# Where properties may stand, in the order of the standard's chapters. WILL is the will of a CONNECT.
PLACES: Final = (
    "CONNECT",
    "WILL",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "DISCONNECT",
    "AUTH",
)

# Identifier -> the property. Only 0x26, and 0x0B in a PUBLISH, may stand more than once in one place.
PROPERTIES: Final = {
    0x01: Property("Payload Format Indicator", ("PUBLISH", "WILL"), 1, "01 01"),
    0x02: Property("Message Expiry Interval", ("PUBLISH", "WILL"), 3_600, "02 00000e10"),
    0x03: Property("Content Type", ("PUBLISH", "WILL"), "a/x", "03 0003612f78"),
    0x08: Property("Response Topic", ("PUBLISH", "WILL"), "r/1", "08 0003722f31"),
    0x09: Property("Correlation Data", ("PUBLISH", "WILL"), b"\x00\xff", "09 000200ff"),
    0x0B: Property("Subscription Identifier", ("PUBLISH", "SUBSCRIBE"), 1, "0b 01"),
    0x11: Property("Session Expiry Interval", ("CONNECT", "CONNACK", "DISCONNECT"), 60, "11 0000003c"),
    0x12: Property("Assigned Client Identifier", ("CONNACK",), "c9", "12 00026339"),
    0x13: Property("Server Keep Alive", ("CONNACK",), 30, "13 001e"),
    0x15: Property("Authentication Method", ("CONNECT", "CONNACK", "AUTH"), "M", "15 00014d"),
    0x16: Property("Authentication Data", ("CONNECT", "CONNACK", "AUTH"), b"\x00\x01", "16 00020001"),
    0x17: Property("Request Problem Information", ("CONNECT",), 0, "17 00"),
    0x18: Property("Will Delay Interval", ("WILL",), 5, "18 00000005"),
    0x19: Property("Request Response Information", ("CONNECT",), 1, "19 01"),
    0x1A: Property("Response Information", ("CONNACK",), "r/", "1a 0002722f"),
    0x1C: Property("Server Reference", ("CONNACK", "DISCONNECT"), "h:1", "1c 0003683a31"),
    0x1F: Property(
        "Reason String",
        ("CONNACK", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBACK", "UNSUBACK", "DISCONNECT", "AUTH"),
        "no",
        "1f 00026e6f",
    ),
    0x21: Property("Receive Maximum", ("CONNECT", "CONNACK"), 10, "21 000a"),
    0x22: Property("Topic Alias Maximum", ("CONNECT", "CONNACK"), 5, "22 0005"),
    0x23: Property("Topic Alias", ("PUBLISH",), 3, "23 0003"),
    0x24: Property("Maximum QoS", ("CONNACK",), 1, "24 01"),
    0x25: Property("Retain Available", ("CONNACK",), 0, "25 00"),
    0x26: Property("User Property", PLACES, ("k", "v"), "26 00016b000176"),
    0x27: Property("Maximum Packet Size", ("CONNECT", "CONNACK"), 1_024, "27 00000400"),
    0x28: Property("Wildcard Subscription Available", ("CONNACK",), 0, "28 00"),
    0x29: Property("Subscription Identifiers Available", ("CONNACK",), 0, "29 00"),
    0x2A: Property("Shared Subscription Available", ("CONNACK",), 0, "2a 00"),
}

# The reason codes of each packet that has one (3.2.2.2 and so on). 0x8c of DISCONNECT is in table 2-6 only.
REASON_CODES: Final = {
    "CONNACK": bytes.fromhex("00 80 81 82 83 84 85 86 87 88 89 8a 8c 90 95 97 99 9a 9b 9c 9d 9f"),
    "PUBACK": bytes.fromhex("00 10 80 83 87 90 91 97 99"),
    "PUBREC": bytes.fromhex("00 10 80 83 87 90 91 97 99"),
    "PUBREL": bytes.fromhex("00 92"),
    "PUBCOMP": bytes.fromhex("00 92"),
    "SUBACK": bytes.fromhex("00 01 02 80 83 87 8f 91 97 9e a1 a2"),
    "UNSUBACK": bytes.fromhex("00 11 80 83 87 8f 91"),
    "DISCONNECT": bytes.fromhex(
        "00 04 80 81 82 83 87 89 8b 8c 8d 8e 8f 90 93 94 95 96 97 98 99 9a 9b 9c 9d 9e 9f a0 a1 a2"
    ),
    "AUTH": bytes.fromhex("00 18 19"),
}
# What a client may send in a DISCONNECT (3.14.2.1). 0x04 is for clients only.
CLIENT_DISCONNECT_CODES: Final = bytes.fromhex("00 04 80 81 82 83 8c 90 93 94 95 96 97 98 99")

# The shortest packet with a property section in each place: first byte, what stands before the section, what after.
_AROUND: Final = {
    "CONNECT": ("10", "0004 4d515454 05 02 0000", "0001 63"),
    "WILL": ("10", "0004 4d515454 05 06 0000 00 0001 63", "0001 77 0001 78"),
    "CONNACK": ("20", "00 00", ""),
    "PUBLISH": ("30", "0003 612f62", ""),
    "PUBACK": ("40", "0001 00", ""),
    "PUBREC": ("50", "0001 00", ""),
    "PUBREL": ("62", "0001 00", ""),
    "PUBCOMP": ("70", "0001 00", ""),
    "SUBSCRIBE": ("82", "0001", "0003 612f62 00"),
    "SUBACK": ("90", "0001", "00"),
    "UNSUBSCRIBE": ("a2", "0001", "0003 612f62"),
    "UNSUBACK": ("b0", "0001", "00"),
    "DISCONNECT": ("e0", "00", ""),
    "AUTH": ("f0", "18", ""),
}


def framed(place: str, properties_hex: str, length_hex: str | None = None) -> str:
    """The shortest packet with this property section in this place; `length_hex` is written as its length."""
    first, before, after = _AROUND[place]
    if length_hex is None:
        length_hex = f"{len(bytes.fromhex(properties_hex)):02x}"
    body = f"{before} {length_hex} {properties_hex} {after}"
    size = len(bytes.fromhex(body))
    assert size < 128, "one byte of remaining length is written"
    return f"{first} {size:02x} {body}"


def required(place: str, identifier: int) -> str:
    """The bytes of what must stand beside a property there: the method beside its data, and in every AUTH."""
    is_needed = place == "AUTH" or (identifier == 0x16 and place in ("CONNECT", "CONNACK"))
    return PROPERTIES[0x15].hex + " " if is_needed and identifier != 0x15 else ""


def senders_of(place: str, identifier: int = 0) -> tuple[str, ...]:
    """Who may send a packet with this property."""
    if place in ("CONNECT", "WILL", "SUBSCRIBE", "UNSUBSCRIBE"):
        return CLIENT
    if place in ("CONNACK", "SUBACK", "UNSUBACK"):
        return SERVER
    if (place, identifier) in (("PUBLISH", 0x0B), ("DISCONNECT", 0x1C)):
        return SERVER
    return CLIENT if (place, identifier) == ("DISCONNECT", 0x11) else EITHER
