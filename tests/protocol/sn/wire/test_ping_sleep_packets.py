"""PINGREQ, SLEEPREQ, WAKEUP and their answers: their fields without a wire."""

import pytest

from embermq.protocol.errors import ProtocolError
from embermq.protocol.sn.wire import packets as sn
from support.sn_vectors import filled_and_read, packets_of


@pytest.mark.parametrize("packet", packets_of("ping_sleep_packets"), ids=repr)
def test_a_packet_is_read_as_it_was_filled(packet: sn.SnPacket) -> None:
    assert filled_and_read(packet) == packet


def test_a_sleep_of_0_seconds_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        filled_and_read(sn.Sleepreq(1, 0))


@pytest.mark.parametrize("remaining", [-1, 0, 255])
def test_no_messages_remaining_differs_from_a_number_that_is_not_written(remaining: int) -> None:
    assert filled_and_read(sn.Pingresp(1, remaining)) == sn.Pingresp(1, remaining)
