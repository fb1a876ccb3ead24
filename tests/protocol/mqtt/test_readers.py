"""The readers: a field that is missing, the longest field, and the layout of a PUBLISH with properties."""

from typing import Final

import pytest

from embermq.protocol.errors import MalformedPacket, PeerError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_311, Dialect
from embermq.protocol.mqtt.fields import Fields
from embermq.protocol.mqtt.readers import read_publish
from embermq.protocol.mqtt.writers import write_publish
from embermq.protocol.packets import Publish, Subscribe
from support.clauses import v311
from support.vectors import VECTORS

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


def with_properties() -> Dialect:
    """3.1.1, but a PUBLISH has a property section behind its packet identifier, as in MQTT 5."""
    return Dialect(
        level=5,
        name="MQTT 5",
        protocol_name=b"MQTT",
        readers_from_client=MQTT_311.readers_from_client,
        readers_from_server=MQTT_311.readers_from_server,
        writers=MQTT_311.writers,
        return_codes=MQTT_311.return_codes,
        suback_failure=0x80,
        has_session_present=True,
        has_reserved_connect_flag=True,
        may_omit_credentials=False,
        has_publish_properties=True,
    )


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("properties", [b"", b"\x01\x01"])
def test_a_publish_may_have_properties(qos: int, properties: bytes) -> None:
    dialect = with_properties()
    packet = Publish("a/b", b"hi", qos, True, packet_id=7 if qos else 0, properties=properties)
    wire = write_publish(packet, dialect)
    section = bytes((len(properties),)) + properties
    assert wire[2:] == b"\x00\x03a/b" + (b"\x00\x07" if qos else b"") + section + b"hi"
    assert read_publish(Fields(wire, 2, len(wire), wire[0] & 15), dialect) == packet


def test_a_property_section_ends_inside_its_publish() -> None:
    wire = b"\x00\x01a\x03\x01\x01"
    with pytest.raises(MalformedPacket):
        read_publish(Fields(wire, 0, len(wire)), with_properties())
