"""The writers of MQTT 5: what is left out, and the parts of a PUBLISH."""

import pytest

from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.mqtt.writers import acknowledgement, publish_section, publish_start
from embermq.protocol.packets import PUBACK, PUBREL, Connack, Connect, Delivery, Publish
from embermq.protocol.reasons import ReasonCode
from support.clauses import v5


@v5("MQTT-3.2.2-6")
def test_a_refusal_never_has_a_session() -> None:
    assert encode(Connack(True, ReasonCode.NOT_AUTHORIZED), MQTT_5) == bytes.fromhex("20 03 00 87 00")


def test_an_acknowledgement_is_as_short_as_it_can_be() -> None:
    assert acknowledgement(PUBACK, 7, 0) == bytes.fromhex("40 02 0007")
    assert acknowledgement(PUBREL, 7, 0x92) == bytes.fromhex("62 03 0007 92")
    assert acknowledgement(PUBACK, 7, 0x97, "no") == bytes.fromhex("40 09 0007 97 05 1f 0002 6e6f")


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload", [b"", b"hi", b"x" * 20_000])
def test_start_and_section_and_payload_make_the_packet(qos: int, payload: bytes) -> None:
    message = Publish("a/é", payload, qos, True, qos > 0, 513 if qos else 0, b"\x01\x01")
    section = publish_section(9, (1, 300), message.properties)
    start = publish_start(Delivery([message], qos, True, qos > 0, 513), "a/é", payload, section)
    assert start + payload == encode(WirePublish(message, 9, (1, 300)), MQTT_5)


def test_a_connect_of_another_level_is_our_bug() -> None:
    with pytest.raises(ValueError, match=r"level 4 has no form in MQTT 5\.0"):
        encode(Connect("c"), MQTT_5)
