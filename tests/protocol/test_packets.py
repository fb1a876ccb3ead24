"""Packets are compared and shown by their fields, compiled and not."""

import pytest

from embermq.protocol.packets import PACKET_IDS, Delivery, Pingreq, Publish, packet_id_of


def test_packets_with_equal_fields_are_equal() -> None:
    assert Publish("t", b"x", 1) == Publish("t", b"x", 1) != Publish("t", b"x", 2)
    assert Pingreq() == Pingreq()
    assert Pingreq() != Publish("t", b"")


def test_a_packet_shows_its_fields_and_nothing_else() -> None:
    message = "Publish(topic_name='t', payload=b'x', qos=0, retain=False, dup=False, packet_id=0, properties=b''"
    assert repr(Publish("t", b"x")) == f"{message}, expires_us=0)"
    assert repr(Pingreq()) == "Pingreq()"


def test_packets_have_no_hash() -> None:
    for packet in (Publish("t", b"x"), Delivery([Publish("t", b"x")]), Pingreq()):
        with pytest.raises(TypeError, match="unhashable"):
            hash(packet)


def test_packet_ids_go_round_and_never_are_0() -> None:
    assert [packet_id_of(sequence) for sequence in (1, 2, PACKET_IDS, PACKET_IDS + 1)] == [1, 2, 65_535, 1]
