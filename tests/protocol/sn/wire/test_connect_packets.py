"""CONNECT, CONNACK, AUTH, DISCONNECT: their fields without a wire."""

import pytest

from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.fields import HAS_EXPIRY, SESSION_EXPIRY, Values
from support.sn_vectors import filled_and_read

WILL = sn.ConnectWill(sn.full_name("w/t"), b"bye", 1, True)


@pytest.mark.parametrize(
    "packet",
    [
        sn.Connect("dev1", session_expiry_s=0),
        sn.Connect("", False, 90, 7, True, WILL, 3_600, 128, 2, "MQTT-BASIC", b"data", True, True),
        sn.Connack(session_expiry_s=0, keep_alive_s=0),
        sn.Connack(0x84, 7, True, 3_600, 30, "g1", "SCRAM", b"data"),
        sn.Auth(3, 0x18, "PLAIN", b"\x01\x02"),
        sn.Disconnect(),
        sn.Disconnect(0x8E, 300, "duplicate", True, 9),
    ],
    ids=lambda packet: type(packet).__name__,
)
def test_a_packet_is_read_as_it_was_filled(packet: sn.SnPacket) -> None:
    assert filled_and_read(packet) == packet


def test_a_will_sets_the_will_flag_and_a_flag_alone_leaves_the_will_to_be_asked_for() -> None:
    assert sn.Connect("dev1", will=sn.ConnectWill(sn.full_name("w/t"), b"bye")).will_flag
    asked = filled_and_read(sn.Connect("dev1", will_flag=True))
    assert isinstance(asked, sn.Connect)
    assert (asked.will_flag, asked.will) == (True, None)


def test_an_expiry_of_0_is_another_packet_than_none() -> None:
    values = Values()
    sn.Disconnect(session_expiry_s=0).fill(values)
    assert values.flag(HAS_EXPIRY)
    assert values.numbers[SESSION_EXPIRY] == 0
    sn.Disconnect().fill(values)
    assert not values.flag(HAS_EXPIRY)


def test_a_connect_keeps_its_authentication_data_out_of_its_repr() -> None:
    assert "secret" not in repr(sn.Connect("dev1", auth_method="MQTT-BASIC", auth_data=b"secret"))
