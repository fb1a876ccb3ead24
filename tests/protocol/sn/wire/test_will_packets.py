"""The packets of the will: their fields without a wire."""

import pytest

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.wire import packets as sn
from support.sn_vectors import filled_and_read, packets_of


@pytest.mark.parametrize("packet", packets_of("will_packets"), ids=repr)
def test_a_packet_is_read_as_it_was_filled(packet: sn.SnPacket) -> None:
    assert filled_and_read(packet) == packet


@pytest.mark.parametrize("name", ["w/+", "#"])
def test_a_will_topic_has_no_wildcards(name: str) -> None:
    with pytest.raises(MalformedPacket):
        filled_and_read(sn.WillTopic(name))
    with pytest.raises(MalformedPacket):
        filled_and_read(sn.Connect("dev1", will=sn.ConnectWill(sn.full_name(name), b"")))


def test_a_will_at_qos_3_is_malformed() -> None:
    with pytest.raises(MalformedPacket):
        filled_and_read(sn.WillTopic("w/t", 3))
    with pytest.raises(MalformedPacket):
        filled_and_read(sn.Connect("dev1", will=sn.ConnectWill(sn.full_name("w/t"), b"", 3)))


def test_an_empty_will_topic_has_no_qos_and_no_retain() -> None:
    assert filled_and_read(sn.WillTopic("", 1, True)) == sn.WillTopic("")


@pytest.mark.parametrize("reference", [sn.session_alias(5), sn.predefined_alias(7), sn.short_name("ab")], ids=repr)
def test_a_will_inside_connect_may_name_its_topic_in_any_way(reference: sn.TopicReference) -> None:
    connect = sn.Connect("dev1", session_expiry_s=0, will=sn.ConnectWill(reference, b"bye", 2, True))
    assert filled_and_read(connect) == connect
