"""The readers of MQTT 5: a body that is cut anywhere, and what a PUBLISH keeps for its connection."""

import pytest

from embermq.protocol.errors import PeerError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.fields import variable_byte_integer
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.packets import Auth, Connect, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from support.clauses import v5
from support.vectors.v5 import VECTORS
from support.vectors.vector import Vector


def decoder(sender: str) -> Decoder:
    return Decoder(100_000, server=sender == "client", levels=(5,), dialect=MQTT_5)


@v5("MQTT-4.13.1-1")
@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_a_body_cut_at_any_byte_is_an_error_or_a_shorter_form(vector: Vector) -> None:
    header_bytes = 1 + len(variable_byte_integer(len(vector.wire) - 2))
    body = vector.wire[header_bytes:]
    for sender in vector.senders:
        for kept in range(len(body)):
            reader = decoder(sender)
            packets = reader.feed(vector.wire[:1] + variable_byte_integer(kept) + body[:kept])
            if not packets:
                assert isinstance(reader.error, PeerError), kept
            elif not isinstance(vector.packet, (Publish, WirePublish, Subscribe, Unsubscribe, Suback, Unsuback)):
                # Acknowledgements and DISCONNECT may end behind their packet identifier or reason code.
                assert kept <= 3 and len(packets) == 1


def test_a_publish_says_what_concerns_its_connection_apart() -> None:
    plain = bytes.fromhex("30 06 000161 02 0101")
    assert decoder("client").feed(plain) == [Publish("a", b"", properties=b"\x01\x01")]
    with_alias = bytes.fromhex("30 09 000161 05 230007 0101")
    (packet,) = decoder("client").feed(with_alias)
    assert packet == WirePublish(Publish("a", b"", properties=b"\x01\x01"), 7)
    with_expiry = bytes.fromhex("30 0b 000161 07 0101 020000003c")
    (packet,) = decoder("client").feed(with_expiry)
    assert packet == WirePublish(Publish("a", b"", properties=bytes.fromhex("02 0000003c 0101")))


@v5("MQTT-3.8.4-3")
def test_one_identifier_counts_for_all_filters() -> None:
    (packet,) = decoder("client").feed(bytes.fromhex("82 0d 0001 02 0b07 000161 00 000162 01"))
    assert isinstance(packet, Subscribe)
    assert [request.subscription_id for request in packet.requests] == [7, 7]


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(Connect("c", password=b"hunter2", authentication_data=b"hunter2"))
    assert "hunter2" not in repr(Auth(0x18, "M", b"hunter2"))
