"""REGISTER, PUBLISH, SUBSCRIBE and their answers: their fields without a wire."""

import pytest

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.sn.wire import packets as sn
from support.sn_vectors import filled_and_read, packets_of


@pytest.mark.parametrize("packet", packets_of("message_packets"), ids=repr)
def test_a_packet_is_read_as_it_was_filled(packet: sn.SnPacket) -> None:
    assert filled_and_read(packet) == packet


def test_a_publish_at_qos_0_has_neither_packet_id_nor_dup() -> None:
    packet = filled_and_read(sn.Publish(sn.session_alias(5), b"x", 0, False, True, 7))
    assert packet == sn.Publish(sn.session_alias(5), b"x")


@pytest.mark.parametrize(("qos", "packet_id"), [(3, 1), (1, 0), (2, 0)])
def test_a_publish_at_qos_3_or_without_its_packet_id_is_malformed(qos: int, packet_id: int) -> None:
    with pytest.raises(MalformedPacket):
        filled_and_read(sn.Publish(sn.session_alias(5), b"x", qos, packet_id=packet_id))


@pytest.mark.parametrize("options", [{"qos": 3}, {"retain_handling": 3}])
def test_a_subscription_option_of_3_is_a_protocol_error(options: dict[str, int]) -> None:
    with pytest.raises(ProtocolError):
        filled_and_read(sn.Subscribe(1, sn.full_name("a/b"), **options))  # type: ignore[arg-type]  # named above


@pytest.mark.parametrize("reason", [0, 1, 2, 0x87])
def test_suback_keeps_the_granted_qos_and_a_refusal(reason: int) -> None:
    assert filled_and_read(sn.Suback(1, reason)) == sn.Suback(1, reason)
