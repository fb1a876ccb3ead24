"""Every packet that a client may not send (4.13): its reason code, the end of its connection, and of no other."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.vectors.rejected_v5 import ALL_REJECTED
from support.vectors.vector import Rejected
from support.wire import Address
from support.wire_v5 import Dial, Join, WireV5

FROM_CLIENTS = [case for case in ALL_REJECTED if "client" in case.senders]
# Nothing says that the client of these speaks 5.0: they are answered in the form of 3.1.1, or not at all.
OF_NO_FORM = ("connect-empty", "connect-version-of-a-bridge", "connect-old-name-new-version")
IN_CONNECT = [case for case in FROM_CLIENTS if case.wire[0] == 0x10 and case.name not in OF_NO_FORM]
LATER = [case for case in FROM_CLIENTS if case.wire[0] >> 4 != 1]


def broken_by(cases: list[Rejected]) -> set[str]:
    """The clauses that these packets break."""
    return {clause for case in cases for clause in (case.clause, *case.proves)}


@v5("MQTT-4.13.2-1", "MQTT-3.1.4-1", "MQTT-3.2.2-7", "MQTT-3.14.0-1", *sorted(broken_by(IN_CONNECT)))
def test_a_bad_connect_gets_connack_with_its_reason(broker_address: Address, join: Join) -> None:
    bystander = join()
    for case in IN_CONNECT:
        with WireV5(broker_address) as client, named(case):
            client.send(case.wire)
            client.assert_refused(case.reason_code)
    bystander.assert_silent()


@v5("MQTT-4.13.2-1", "MQTT-3.14.4-1", "MQTT-3.14.4-2", *sorted(broken_by(LATER)))
@pytest.mark.parametrize("kind", sorted({case.wire[0] >> 4 for case in LATER}))
def test_a_bad_packet_gets_disconnect_with_its_reason(
    broker_address: Address, join: Join, space: str, kind: int
) -> None:
    bystander = join()
    for case in LATER:
        if case.wire[0] >> 4 == kind:
            with WireV5(broker_address) as client, named(case):
                client.send(wire_v5.connect(f"{space}bad"))
                client.expect(wire.CONNACK)
                client.send(case.wire, wire.packet(wire.PINGREQ, 0))
                client.assert_disconnected(case.reason_code)
    bystander.assert_silent()


@contextmanager
def named(case: Rejected) -> Iterator[None]:
    """A failure says which packet it is about."""
    try:
        yield
    except (AssertionError, OSError) as error:
        raise AssertionError(f"{case.id}: {error}") from error


@pytest.mark.parametrize("name", OF_NO_FORM)
def test_a_connect_of_no_known_version_ends_the_connection(dial: Dial, join: Join, name: str) -> None:
    (case,) = [each for each in FROM_CLIENTS if each.name == name]
    client, bystander = dial(), join()
    client.send(case.wire)
    if name != "connect-empty":
        assert client.read(4) == bytes.fromhex("20 02 00 01")
    client.assert_closed()
    bystander.assert_silent()


@v5("MQTT-3.14.0-1")
@pytest.mark.parametrize(
    "data", ["e0 00", "00 00", "30 04 0001 61 00", "c0 00", "11 0e 00044d515454 05 02 0000 00 000163"]
)
def test_what_is_no_connect_is_not_answered(dial: Dial, join: Join, data: str) -> None:
    client, bystander = dial(), join()
    client.send(data)
    client.assert_closed()
    bystander.assert_silent()


@v5("MQTT-4.13.1-1")
def test_a_connect_that_ends_anywhere_harms_nobody(dial: Dial, join: Join, space: str) -> None:
    bystander = join()
    whole = wire_v5.connect(
        f"{space}cut",
        expiry=10,
        will=wire_v5.Will(f"{space}/will", b"x", properties=[(wire_v5.WILL_DELAY, 1)]),
        user_name="u",
        password=b"p",
        properties=[(wire_v5.USER_PROPERTY, ("k", "v"))],
    )
    bystander.subscribe(f"{space}/#")
    for cut in range(1, len(whole)):
        client = dial()
        client.send(whole[:cut])
        client.drop()
    bystander.assert_silent()


@v5("MQTT-4.13.1-1")
def test_a_packet_that_ends_anywhere_harms_nobody(join: Join, space: str) -> None:
    bystander = join()
    bystander.subscribe(f"{space}/#")
    given = [(wire_v5.USER_PROPERTY, ("k", "v"))]
    packets = [
        wire_v5.publish(f"{space}/a", b"x", qos=1, packet_id=1, properties=[(wire_v5.ALIAS, 1), *given]),
        wire_v5.subscribe(1, (f"{space}/a", 1), properties=[(wire_v5.SUBSCRIPTION_ID, 300), *given]),
        wire_v5.ack(wire.PUBREC, 1, 0, given),
        wire_v5.disconnect(0x04, given),
    ]
    for packet in packets:
        for cut in range(1, len(packet)):
            client = join()
            client.send(packet[:cut])
            client.drop()
    bystander.assert_silent()
