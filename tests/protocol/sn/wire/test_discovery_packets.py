"""ADVERTISE, SEARCHGW, GWINFO: their fields without a wire."""

import pytest

from embermq.protocol.sn.wire import packets as sn
from support.sn_vectors import filled_and_read, packets_of


@pytest.mark.parametrize("packet", packets_of("discovery_packets"), ids=repr)
def test_a_packet_is_read_as_it_was_filled(packet: sn.SnPacket) -> None:
    assert filled_and_read(packet) == packet


def test_a_gateway_address_is_kept_as_bytes() -> None:
    assert filled_and_read(sn.Gwinfo(7, b"\x00\xff")) == sn.Gwinfo(7, b"\x00\xff")
