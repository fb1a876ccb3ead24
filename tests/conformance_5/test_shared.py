"""Shared subscriptions (4.8.2): what happens to a message on its way to a member that goes or refuses."""

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import PUBACK, PUBCOMP, PUBREC, PUBREL
from support.wire_v5 import Join, WireV5

ENGINES = ("memory", "directory")
STORED = {"clean": False, "expiry": 100}


def first_member(join: Join, space: str, qos: int) -> tuple[WireV5, wire_v5.Message]:
    """A member of the group with a stored session, to which a message is on its way."""
    member = join("first", **STORED)
    member.subscribe((f"$share/g/{space}/a", 2))
    join().publish(f"{space}/a", b"one", qos=qos)
    return member, member.receive_message(answer=False)


@v5("MQTT-4.8.2-4", "MQTT-4.4.0-1")
@pytest.mark.parametrize("got_pubrec", [False, True])
def test_a_qos_2_message_waits_for_the_member_that_it_was_sent_to(join: Join, space: str, got_pubrec: bool) -> None:
    member, message = first_member(join, space, 2)
    if got_pubrec:
        member.send(wire.ack(PUBREC, message.packet_id))
        member.expect(PUBREL, message.packet_id)
    other = join()
    other.subscribe((f"$share/g/{space}/a", 2))
    member.drop()
    other.assert_silent()
    member = join("first", **STORED, session_present=1)
    if got_pubrec:
        member.expect(PUBREL, message.packet_id)
        member.send(wire.ack(PUBCOMP, message.packet_id))
    else:
        assert member.receive_message() == message._replace(dup=True)
    member.assert_silent()
    other.assert_silent()


@v5("MQTT-4.8.2-5")
def test_a_qos_2_message_of_a_member_whose_session_ends_goes_to_no_other(join: Join, space: str) -> None:
    member, _ = first_member(join, space, 2)
    other = join()
    other.subscribe((f"$share/g/{space}/a", 2))
    member.drop()
    join("first", clean=True).assert_silent()
    other.assert_silent()
    # The group goes on.
    join().publish(f"{space}/a", b"two", qos=2)
    assert other.receive_message().payload == b"two"


def test_a_qos_1_message_of_a_member_that_goes_reaches_another(join: Join, space: str) -> None:
    member, _ = first_member(join, space, 1)
    other = join()
    other.subscribe((f"$share/g/{space}/a", 2))
    member.drop()
    assert other.receive_message().payload == b"one"
    join("first", **STORED, session_present=1).assert_silent()


@v5("MQTT-4.8.2-6")
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_message_that_a_member_refuses_goes_to_no_other(join: Join, space: str, qos: int, kind: int) -> None:
    member, message = first_member(join, space, qos)
    other = join()
    other.subscribe((f"$share/g/{space}/a", 2))
    member.send(wire_v5.ack(kind, message.packet_id, 0x83))
    member.ping()
    member.drop()
    other.assert_silent()
    join("first", **STORED, session_present=1).assert_silent()


@pytest.mark.parametrize("handling", [0, 1])
def test_a_shared_subscription_is_sent_no_retained_messages(join: Join, space: str, handling: int) -> None:
    join().publish(f"{space}/a", b"retained", qos=1, retain=True)
    member = join()
    assert member.subscribe((f"$share/g/{space}/a", wire_v5.options(1, handling=handling))) == [1]
    member.assert_silent()
