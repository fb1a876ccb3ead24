"""CONNECT and CONNACK (3.1, 3.2), and the keep alive (3.1.2.10)."""

import time

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import CONNACK, PINGREQ, PINGRESP
from support.wire_v5 import (
    ALIAS_MAXIMUM,
    ASK_RESPONSE_INFORMATION,
    ASSIGNED_CLIENT_ID,
    MAXIMUM_PACKET_SIZE,
    METHOD,
    PROBLEM_INFORMATION,
    REASON_STRING,
    RESPONSE_INFORMATION,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY,
    USER_PROPERTY,
    Dial,
    Join,
    Pairs,
    Will,
)


@v5("MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.0-2", "MQTT-3.2.2-1", "MQTT-3.2.2-2", "MQTT-3.2.2-8")
def test_a_connect_is_answered_with_one_connack_before_anything_else(dial: Dial, space: str) -> None:
    client = dial()
    client.send(
        wire_v5.connect(space),
        wire_v5.subscribe(1, (f"{space}/a", 0)),
        wire_v5.publish(f"{space}/a", b"hi"),
        wire.packet(PINGREQ, 0),
    )
    kinds = [client.receive().kind for _ in range(4)]
    assert kinds == [CONNACK, wire.SUBACK, wire.PUBLISH, PINGRESP]
    client.assert_silent()


@v5("MQTT-3.1.2-1")
@pytest.mark.parametrize("name", ["MQTS", "mqtt", "", "MQTTX", "HTTP"])
def test_another_protocol_name_ends_the_connection(dial: Dial, space: str, name: str) -> None:
    client = dial()
    client.send(wire_v5.connect(space, name=name))
    client.assert_closed()


@v5("MQTT-3.1.2-2", "MQTT-3.2.2-7")
@pytest.mark.parametrize("level", [6, 7, 127])
def test_a_version_that_is_not_served_gets_its_reason(dial: Dial, space: str, level: int) -> None:
    client = dial()
    client.send(wire_v5.connect(space, level=level))
    client.assert_refused(0x84)


@v5("MQTT-3.1.4-6", "MQTT-3.2.2-7", "MQTT-3.1.4-1", "MQTT-3.2.0-2")
def test_nothing_behind_a_refused_connect_is_processed(dial: Dial, join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    client = dial()
    client.send(
        wire_v5.connect(f"{space}c", flags=0x03, will=Will(f"{space}/will", b"must not come")),
        wire_v5.publish(f"{space}/a", b"must not come", qos=1, packet_id=1),
        wire.packet(PINGREQ, 0),
    )
    client.assert_refused(0x81)
    watcher.assert_silent()


@v5("MQTT-3.1.2-28")
@pytest.mark.parametrize("properties", [[], [(ASK_RESPONSE_INFORMATION, 0)]], ids=["absent", "0"])
def test_who_does_not_ask_for_response_information_is_sent_none(dial: Dial, space: str, properties: Pairs) -> None:
    assert RESPONSE_INFORMATION not in dial().connect(space, properties=properties).properties


@v5("MQTT-4.12.0-6")
def test_who_names_no_authentication_method_is_sent_none(dial: Dial, space: str) -> None:
    client = dial()
    connack = client.connect(space, user_name="ann", password=b"secret")
    assert connack.reason == 0 and METHOD not in connack.properties
    client.assert_silent()


@v5("MQTT-4.12.0-1")
@pytest.mark.parametrize("method", ["PLAIN", "scram-sha-256", ""])
def test_a_method_that_is_not_offered_is_refused(dial: Dial, space: str, method: str) -> None:
    client = dial()
    client.send(wire_v5.connect(space, properties=[(METHOD, method)]))
    client.assert_refused(0x8C)


@v5("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_a_client_without_an_id_is_told_the_one_it_gets_and_finds_its_session_by_it(dial: Dial, space: str) -> None:
    ids = []
    for _ in range(2):
        client = dial()
        ids.append(client.connect("", expiry=100).properties[ASSIGNED_CLIENT_ID])
        client.disconnect()
    assert len(set(ids)) == 2
    for assigned in ids:
        assert isinstance(assigned, str)
        connack = dial().connect(assigned, clean=False, expiry=100)
        assert connack.session_present and ASSIGNED_CLIENT_ID not in connack.properties


@v5("MQTT-3.1.3-5")
@pytest.mark.parametrize("client_id", ["0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTXYZ", "0123456789"])
def test_plain_client_ids_are_accepted(dial: Dial, client_id: str) -> None:
    client = dial()
    assert client.connect(client_id).reason == 0
    client.disconnect()


@v5("MQTT-3.2.2-15", "MQTT-3.2.2-17")
def test_connack_announces_the_limits_of_the_server(dial: Dial, space: str) -> None:
    found = dial().connect(space).properties
    assert found[MAXIMUM_PACKET_SIZE] == 16 * 1024 * 1024
    assert found[ALIAS_MAXIMUM] == 64
    # What is left out is available: every QoS, retained messages, wildcards, identifiers and shared subscriptions.
    assert not {0x24, 0x25, 0x28, 0x29, 0x2A} & set(found)
    assert {SESSION_EXPIRY, SERVER_KEEP_ALIVE, ASSIGNED_CLIENT_ID, METHOD, REASON_STRING}.isdisjoint(found)


@v5("MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.1.2-24")
@pytest.mark.parametrize("limit", [4, 5, 12, 30, 40])
@pytest.mark.parametrize("refused", [True, False])
def test_connack_is_never_larger_than_the_client_takes(dial: Dial, space: str, limit: int, refused: bool) -> None:
    """What is sent fits: without a reason string, and not at all if even that is too much."""
    client = dial()
    client.maximum_packet_size = limit
    properties: list[tuple[int, int | str | bytes | tuple[str, str]]] = [(MAXIMUM_PACKET_SIZE, limit)]
    properties += [(USER_PROPERTY, ("k", "v"))] * 3
    if refused:
        properties.append((METHOD, "unknown"))
    client.send(wire_v5.connect(space, properties=properties))
    if limit < (5 if refused else 13):
        client.assert_closed()
        return
    connack = wire_v5.connack_of(client.expect(CONNACK))
    assert connack.reason == (0x8C if refused else 0)
    assert (REASON_STRING in connack.properties) == (refused and limit == 40)
    assert USER_PROPERTY not in connack.properties


@v5("MQTT-3.1.2-29")
def test_problem_information_0_is_obeyed_in_every_answer(join: Join, space: str) -> None:
    client = join(properties=[(PROBLEM_INFORMATION, 0)])
    client.send(wire_v5.publish("$SYS/mine", b"x", qos=1, packet_id=1))
    assert wire_v5.answer_of(client.expect(wire.PUBACK, 1)) == ([0x90], [])
    client.send(wire.ack(wire.PUBREL, 2))
    assert wire_v5.answer_of(client.expect(wire.PUBCOMP, 2)) == ([0x92], [])
    join().publish(f"{space}/other", b"x")


# -- keep alive --------------------------------------------------------------------------------------------------------


@v5("MQTT-3.1.2-22", "MQTT-3.2.2-22")
def test_a_silent_client_is_cut_off_after_one_and_a_half_times_its_keep_alive(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    start = time.monotonic()
    client = join(keep_alive=1, will=Will(f"{space}/will", b"gone"))
    client.assert_disconnected(0x8D)
    assert time.monotonic() - start > 1.4  # not before the time is up
    assert watcher.receive_message().payload == b"gone"


@v5("MQTT-3.1.2-22")
def test_any_packet_keeps_a_client_alive_and_keep_alive_zero_needs_none(join: Join, space: str) -> None:
    pinging, publishing, acknowledging = (join(keep_alive=3) for _ in range(3))
    unlimited = join(keep_alive=0)
    silent = join(keep_alive=3)
    while not silent.readable_within(0.3):
        pinging.ping()
        publishing.send(wire_v5.publish(f"{space}/a", b"x"))
        acknowledging.send(wire_v5.ack(wire.PUBACK, 1))
    silent.assert_disconnected(0x8D)
    for client in (pinging, publishing, acknowledging, unlimited):
        client.ping()


# -- PINGREQ and DISCONNECT --------------------------------------------------------------------------------------------


@v5("MQTT-3.12.4-1")
def test_every_pingreq_gets_a_pingresp(join: Join) -> None:
    client = join()
    client.send(wire.packet(PINGREQ, 0) * 5)
    assert [client.receive() for _ in range(5)] == [(PINGRESP, 0, b"")] * 5


@v5("MQTT-3.14.4-3", "MQTT-3.14.4-2")
def test_nothing_behind_a_disconnect_is_processed_and_nothing_is_answered(join: Join, space: str) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/#")
    client = join(will=Will(f"{space}/will", b"must not come"))
    client.send(wire_v5.disconnect() + wire_v5.publish(f"{space}/a", b"must not come either", qos=1, packet_id=1))
    client.assert_closed()
    watcher.assert_silent()


@v5("MQTT-3.1.4-3", "MQTT-3.14.4-1", "MQTT-3.14.2-1", "MQTT-3.14.2-2")
def test_the_older_of_two_connections_is_told_that_it_was_replaced(join: Join, space: str) -> None:
    older = join("same")
    newer = join("same")
    older.assert_disconnected(0x8E)
    newer.assert_silent()


@v5("MQTT-3.1.0-2")
def test_a_second_connect_is_a_protocol_error(join: Join, space: str) -> None:
    client, bystander = join(), join()
    client.send(wire_v5.connect(f"{space}again"))
    client.assert_disconnected(0x82)
    bystander.assert_silent()
