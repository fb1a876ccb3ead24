"""The readers: a field that is missing, and the longest field."""

from typing import Final

import pytest

from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.packets import Subscribe
from support.clauses import v311
from support.vectors.v311 import VECTORS

# A vector, and how many bytes of its body a packet of that kind cannot do without.
NEEDED: Final = [
    ("connect-everything", 31),
    ("connect-31", 17),
    ("connack", 2),
    ("publish-qos0", 5),
    ("publish-qos1", 7),
    ("puback", 2),
    ("pubrec", 2),
    ("pubrel", 2),
    ("pubcomp", 2),
    ("subscribe", 8),
    ("suback", 3),
    ("unsubscribe", 7),
    ("unsuback", 2),
]


@v311("MQTT-4.8.0-1")
@pytest.mark.parametrize(("name", "body_bytes"), NEEDED)
def test_a_field_cut_at_any_byte_ends_the_stream(name: str, body_bytes: int) -> None:
    vector = next(vector for vector in VECTORS if vector.name == name)
    body = vector.wire[2:]
    for sender in vector.senders:
        for kept in range(body_bytes):
            decoder = Decoder(1000, server=sender == "client")
            assert decoder.feed(bytes((vector.wire[0], kept)) + body[:kept]) == [], kept
            assert isinstance(decoder.error, PeerError), kept


@v311("MQTT-4.7.3-3")
def test_the_longest_topic_filter_is_taken() -> None:
    topic_filter = "/" * 65_534 + "#"
    wire = bytes.fromhex("82 84 80 04 0001 ffff") + topic_filter.encode() + b"\x01"
    (packet,) = Decoder(1_000_000).feed(wire)
    assert isinstance(packet, Subscribe)
    assert packet.requests[0].topic_filter == topic_filter
