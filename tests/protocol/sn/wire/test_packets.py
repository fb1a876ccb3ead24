"""One name for all packets: none is missing from it."""

import pytest

from embermq.protocol.sn.wire import packets
from embermq.protocol.sn.wire.kinds import SnPacket
from support.sn_vectors import VECTORS


@pytest.mark.parametrize("packet_class", sorted({type(v.packet) for v in VECTORS}, key=str))
def test_every_packet_that_is_on_a_wire_is_there(packet_class: type[SnPacket]) -> None:
    assert getattr(packets, packet_class.__name__) is packet_class
