"""Packets: what their fields mean, whatever the wire."""

import pytest

from embermq.protocol.errors import MalformedPacket, ProtocolError
from embermq.protocol.sn.wire import fields as f
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.layouts import Profile
from embermq.protocol.sn.wire.packets import SnPacket
from embermq.protocol.sn.wire.profiles import V12, A, B, W
from support import sn_packets as sn
from support.sn_vectors import VECTORS

WILL = sn.ConnectWill(sn.full_name("w/t"), b"bye", 1, True)


def over(profile: Profile, packet: SnPacket) -> SnPacket:
    """A packet as it is after it was written and read."""
    return decode(encode(packet, profile), profile)


# -- kinds -------------------------------------------------------------------------------------------------------------


def test_every_kind_has_its_name() -> None:
    assert [getattr(sn, name) for name in sn.NAMES] == list(range(len(sn.NAMES)))


def test_the_vectors_have_packets_of_every_kind() -> None:
    assert {vector.packet.kind for vector in VECTORS} == set(range(len(sn.NAMES)))


# -- fields ------------------------------------------------------------------------------------------------------------


def test_an_optional_number_is_absent_until_it_is_set_even_to_0() -> None:
    assert not sn.disconnect().holds(f.SESSION_EXPIRY)
    assert sn.disconnect(session_expiry_s=0).holds(f.SESSION_EXPIRY)


def test_two_packets_share_no_fields() -> None:
    sn.register(7, "a/b", 5)
    other = SnPacket(sn.REGISTER)
    assert (other.packet_id, other.topic_name, other.topic_alias) == (0, "", 0)
    assert not other.holds(f.NAME)


def test_packets_are_equal_if_their_kinds_and_fields_are() -> None:
    assert sn.acknowledgement(sn.PUBREC, 7) == sn.acknowledgement(sn.PUBREC, 7)
    assert sn.acknowledgement(sn.PUBREC, 7) != sn.acknowledgement(sn.PUBREL, 7)
    assert sn.acknowledgement(sn.PUBREC, 7) != sn.acknowledgement(sn.PUBREC, 8)


def test_a_packet_shows_the_fields_that_it_has() -> None:
    shown = repr(sn.publish(sn.session_alias(5), b"hi", 1, packet_id=7))
    assert shown.startswith("PUBLISH(packet_id=7, reference=TopicReference(")
    assert shown.endswith("payload=b'hi', qos=1)")


def test_a_connect_keeps_its_authentication_data_out_of_its_repr() -> None:
    assert "secret" not in repr(sn.connect("dev1", auth_method="MQTT-BASIC", auth_data=b"secret"))


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", [sn.session_alias(5), sn.predefined_alias(5), sn.short_name("ab")], ids=repr)
@pytest.mark.parametrize("profile", [W, A], ids=str)
def test_a_message_a_subscription_and_a_will_name_a_topic_in_each_way(
    profile: Profile, reference: sn.TopicReference
) -> None:
    assert over(profile, sn.publish(reference, b"x")).reference == reference
    assert over(profile, sn.subscribe(1, reference)).reference == reference
    assert over(A, sn.connect("dev1", will=sn.ConnectWill(reference, b"bye", 2, True))).will == sn.ConnectWill(
        reference, b"bye", 2, True
    )


@pytest.mark.parametrize("name", ["", "a", "abc", "\xe4b"])
def test_a_short_name_is_two_bytes(name: str) -> None:
    with pytest.raises(ValueError, match="two bytes"):
        encode(sn.publish(sn.short_name(name), b""), A)
    with pytest.raises(ValueError, match="two bytes"):
        encode(sn.subscribe(1, sn.short_name(name)), A)


@pytest.mark.parametrize(
    "reference", [sn.full_name("a/+"), sn.full_name("#"), sn.short_name("a+"), sn.full_name("")], ids=repr
)
def test_a_message_has_no_wildcards_and_a_subscription_is_checked_later(reference: sn.TopicReference) -> None:
    for message in (sn.publish(reference, b""), sn.pubwos(reference, b"")):
        with pytest.raises(MalformedPacket):
            over(A, message)
    with pytest.raises(MalformedPacket):
        over(A, sn.connect("dev1", will=sn.ConnectWill(reference, b"")))
    assert over(A, sn.subscribe(1, reference)).reference == reference


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_publish_at_qos_0_has_neither_packet_id_nor_dup() -> None:
    sent = sn.publish(sn.session_alias(5), b"x", 0, False, True, 7)
    assert over(V12, sent) == sn.publish(sn.session_alias(5), b"x")


@pytest.mark.parametrize("profile", [V12, W, A, B], ids=str)
@pytest.mark.parametrize(("qos", "packet_id"), [(1, 0), (2, 0)])
def test_a_publish_without_its_packet_id_is_malformed(profile: Profile, qos: int, packet_id: int) -> None:
    with pytest.raises(MalformedPacket):
        over(profile, sn.publish(sn.session_alias(5), b"x", qos, packet_id=packet_id))


@pytest.mark.parametrize("profile", [W, A, B], ids=str)
def test_a_publish_at_qos_3_is_malformed_where_a_message_without_a_session_has_its_own_packet(profile: Profile) -> None:
    with pytest.raises(MalformedPacket):
        over(profile, sn.publish(sn.session_alias(5), b"x", 3, packet_id=1))


@pytest.mark.parametrize("profile", [W, A, B], ids=str)
@pytest.mark.parametrize("options", [{"qos": 3}, {"retain_handling": 3}])
def test_a_subscription_option_of_3_is_a_protocol_error(profile: Profile, options: dict[str, int]) -> None:
    with pytest.raises(ProtocolError):
        over(profile, sn.subscribe(1, sn.full_name("a/b"), **options))  # type: ignore[arg-type]  # named above


@pytest.mark.parametrize("profile", [V12, W, A, B], ids=str)
@pytest.mark.parametrize("reason", [0, 1, 2, 0x83])
def test_suback_keeps_the_granted_qos_and_a_refusal(profile: Profile, reason: int) -> None:
    assert over(profile, sn.suback(1, reason, 5)) == sn.suback(1, reason, 5)


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packet",
    [
        sn.connect("dev1", session_expiry_s=0),
        sn.connect("", False, 90, 7, True, WILL, 3_600, 128, 2, "MQTT-BASIC", b"data", True, True),
        sn.full_connack(session_expiry_s=0, server_keep_alive_s=0),
        sn.full_connack(0x84, 7, True, 3_600, 30, "g1", "SCRAM", b"data"),
        sn.auth(3, 0x18, "PLAIN", b"\x01\x02"),
        sn.disconnect(),
        sn.disconnect(0x8E, 300, "duplicate", packet_id=9),
    ],
    ids=repr,
)
def test_every_field_of_a_connection_survives_the_wire_that_has_them_all(packet: SnPacket) -> None:
    assert over(B, packet) == packet


def test_a_will_sets_the_will_flag_and_a_flag_alone_leaves_the_will_to_be_asked_for() -> None:
    assert sn.connect("dev1", will=WILL).will_flag
    asked = over(V12, sn.connect("dev1", will_flag=True, version=1))
    assert (asked.will_flag, asked.will) == (True, None)


@pytest.mark.parametrize("name", ["w/+", "#"])
def test_a_will_topic_has_no_wildcards(name: str) -> None:
    with pytest.raises(MalformedPacket):
        over(V12, sn.will_topic(name))


def test_a_will_at_qos_3_is_malformed() -> None:
    with pytest.raises(MalformedPacket):
        over(V12, sn.will_topic("w/t", 3))
    with pytest.raises(MalformedPacket):
        over(A, sn.connect("dev1", will=sn.ConnectWill(sn.full_name("w/t"), b"", 3)))


def test_an_empty_will_topic_has_no_qos_and_no_retain() -> None:
    assert over(V12, sn.will_topic("", 1, True)) == sn.will_topic("")
    assert decode(bytes.fromhex("03 07 30"), V12) == sn.will_topic("")


# -- sleep and discovery -----------------------------------------------------------------------------------------------


def test_a_sleep_of_0_seconds_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        over(B, sn.sleepreq(1, 0))


@pytest.mark.parametrize("remaining", [-1, 0, 255])
def test_no_messages_remaining_differs_from_a_number_that_is_not_written(remaining: int) -> None:
    assert over(B, sn.pingresp(1, remaining)) == sn.pingresp(1, remaining)


def test_a_gateway_address_is_kept_as_bytes() -> None:
    assert over(A, sn.gwinfo(7, b"\x00\xff")).address == b"\x00\xff"
