"""One connection without a socket: its states, what it keeps until it is open, and its output."""

from collections.abc import Callable

import pytest

from embermq.protocol.errors import MalformedPacket, PeerError, ProtocolError
from embermq.protocol.mqtt import states
from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.decode import CONNECT_BYTES_MAX
from embermq.protocol.mqtt.dialect import MQTT_31, MQTT_311
from embermq.protocol.mqtt.encode import Encodings, encode
from embermq.protocol.mqtt.states import AUTHENTICATING, AWAITING_CONNECT, CLOSED, CLOSING, OPEN, OPENING, TRANSITIONS
from embermq.protocol.packets import (
    PUBACK,
    Acknowledgement,
    Connack,
    Connect,
    Delivery,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback
from support.clauses import v311

CONNECT = encode(Connect("c"))
PING = encode(Pingreq())


def always(answer: bool) -> Callable[[], bool]:
    return lambda: answer


def connection(
    output_bytes_max: int = 1_000,
    output_waits: Callable[[], None] = lambda: None,
    make_room: Callable[[], bool] = always(False),  # noqa: B008  # the same function for all is meant
) -> Connection:
    return Connection(Encodings(), 1_000_000, output_bytes_max, output_waits, make_room)


def opened(**options: object) -> Connection:
    made = connection(**options)  # type: ignore[arg-type]  # handed through as they are
    made.receive_data(CONNECT)
    made.accepted()
    made.opened()
    return made


# -- states ----------------------------------------------------------------------------------------------------------


def test_a_connection_goes_from_connect_to_its_end() -> None:
    client = connection()
    assert client.state == AWAITING_CONNECT
    assert client.receive_data(CONNECT[:5]) == []
    assert client.state == AWAITING_CONNECT
    assert client.receive_data(CONNECT[5:]) == [Connect("c")]
    assert client.state == AUTHENTICATING
    client.accepted()
    assert client.state == OPENING
    client.send(Connack(False))
    assert client.opened() == []
    assert client.state == OPEN
    assert client.receive_data(PING) == [Pingreq()]
    assert client.close()
    assert client.state == CLOSING
    assert not client.close()
    assert client.data_to_send() == [encode(Connack(False))]
    client.last_sent()
    assert client.state == CLOSED
    client.lost()
    assert client.state == CLOSED
    assert client.failure is None


def test_the_table_leads_from_every_state_to_the_end() -> None:
    for state in (AWAITING_CONNECT, AUTHENTICATING, OPENING, OPEN, CLOSING):
        assert TRANSITIONS[state, states.CONNECTION_LOST] == CLOSED
        if state != CLOSING:
            assert TRANSITIONS[state, states.END_DECIDED] == CLOSING
    assert {after for (before, _), after in TRANSITIONS.items() if before == CLOSED} == {CLOSED}
    assert all(after > before for (before, _), after in TRANSITIONS.items() if before != CLOSED)


def test_what_the_table_does_not_list_is_our_bug() -> None:
    with pytest.raises(KeyError):
        connection().opened()
    with pytest.raises(KeyError):
        connection().accepted()
    with pytest.raises(KeyError):
        opened().last_sent()


@v311("MQTT-3.1.0-1")
@pytest.mark.parametrize("first", [Pingreq(), Publish("a", b"x"), puback(1)])
def test_the_first_packet_must_be_connect(first: Packet) -> None:
    client = connection()
    assert client.receive_data(encode(first) + CONNECT) == []
    assert isinstance(client.failure, ProtocolError)
    assert client.failure.clause == "MQTT-3.1.0-1"
    assert client.state == AWAITING_CONNECT
    assert client.data_to_send() == []


def test_bad_bytes_before_connect_end_it_unanswered() -> None:
    client = connection()
    assert client.receive_data(b"\x00\x00") == []
    assert isinstance(client.failure, MalformedPacket)
    assert client.data_to_send() == []


@v311("MQTT-3.1.2-2")
def test_another_level_is_answered_with_its_return_code() -> None:
    client = connection()
    assert client.receive_data(bytes.fromhex("10 0f 0004 4d515454 05 02 0000 00 0002 6331")) == []
    assert client.failure is not None
    assert client.failure.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
    assert client.failure.detail == "MQTT 5 is not supported; connect with MQTT 3.1.1 (client 'c1')"
    assert client.data_to_send() == [bytes.fromhex("20 02 00 01")]


def test_before_connect_no_more_is_kept_than_the_largest_connect_needs() -> None:
    client = connection()
    assert client.receive_data(encode(Publish("t", bytes(2 * CONNECT_BYTES_MAX)))[:10]) == []
    assert client.failure is not None and client.failure.reason == ReasonCode.PACKET_TOO_LARGE
    large = Publish("t", bytes(2 * CONNECT_BYTES_MAX))
    assert opened().receive_data(encode(large)) == [large]


# -- packets before CONNACK ------------------------------------------------------------------------------------------


def test_what_comes_before_connack_is_kept_in_order() -> None:
    client = connection()
    first, second, third = Publish("a", b"1"), Publish("a", b"2"), Publish("a", b"3")
    assert client.receive_data(CONNECT + encode(first)) == [Connect("c")]
    assert client.receive_data(encode(second)) == []
    client.accepted()
    assert client.receive_data(encode(third)[:4]) == []
    assert client.opened() == [first, second]
    assert client.receive_data(encode(third)[4:]) == [third]


def test_a_bad_packet_behind_connect_counts_when_the_connection_is_open() -> None:
    client = connection()
    assert client.receive_data(CONNECT + PING + b"\x00\x00") == [Connect("c")]
    assert client.failure is None
    client.accepted()
    assert client.failure is None
    assert client.opened() == [Pingreq()]
    assert isinstance(client.failure, PeerError)


def test_a_second_connect_is_a_matter_of_the_core() -> None:
    client = opened()
    assert client.receive_data(CONNECT) == [Connect("c")]
    assert client.failure is None


def test_nothing_is_kept_after_the_end_was_decided() -> None:
    client = connection()
    client.receive_data(CONNECT)
    client.close()
    assert client.receive_data(PING) == []


# -- the dialect -----------------------------------------------------------------------------------------------------


def test_connect_decides_what_is_written() -> None:
    old = connection()
    assert old.dialect is MQTT_311
    old.receive_data(encode(Connect("c", protocol_level=3), MQTT_31))
    assert old.dialect is MQTT_31
    old.send(Connack(True))
    old.send(Suback(1, [ReasonCode.NOT_AUTHORIZED]))
    assert old.data_to_send() == [bytes.fromhex("20 02 00 00  90 03 0001 00")]


# -- output ----------------------------------------------------------------------------------------------------------


def test_output_is_gathered_until_it_is_taken() -> None:
    told: list[str] = []
    client = opened(output_waits=lambda: told.append("output"))
    message = Publish("t", b"hi", 1, packet_id=7)
    client.forward(message)
    client.deliver(Delivery([message], 1, False, False, 300))
    client.deliver(Delivery([message], 2, True, True, 301))
    client.deliver(Delivery([message], 0, True))
    client.deliver(Delivery([message]))
    client.acknowledge(Acknowledgement(PUBACK, 7))
    client.send(Pingresp())
    assert told == ["output"]
    expected = [
        Publish("t", b"hi"),
        Publish("t", b"hi", 1, packet_id=300),
        Publish("t", b"hi", 2, True, True, 301),
        Publish("t", b"hi", 0, True),
        Publish("t", b"hi"),
        puback(7),
        Pingresp(),
    ]
    wire = b"".join(map(encode, expected))
    assert client.pending_bytes == len(wire)
    assert client.answer_bytes == 6
    assert client.data_to_send() == [wire]
    assert client.packets_taken == 7
    assert client.data_to_send() == []
    assert client.packets_taken == 0
    client.send(Pingresp())
    assert told == ["output", "output"]


def test_what_the_dialect_cannot_say_is_no_output() -> None:
    client = opened()
    client.send(Connack(False, ReasonCode.PROTOCOL_ERROR))
    assert client.data_to_send() == []
    assert client.answer_bytes == 0


def test_qos_0_is_dropped_when_too_much_output_waits_and_the_rest_is_not() -> None:
    client = opened(output_bytes_max=100)
    message = Publish("t", bytes(60))
    assert [client.forward(message) for _ in range(3)] == [True, True, False]
    assert not client.deliver(Delivery([message], 0, True))
    assert not client.has_room()
    assert client.deliver(Delivery([message], 1, False, False, 1))
    client.send(Pingresp())
    assert client.pending_bytes == 2 * 65 + 67 + 2
    client.data_to_send()
    assert not client.has_room(), "nothing has left yet"
    client.buffered(100)
    assert client.has_room() and client.forward(message)
    client.buffered(100)
    assert client.pending_bytes == 165, "what has not been taken yet counts as well"


def test_the_shell_is_asked_for_room_before_something_is_dropped() -> None:
    asked: list[int] = []

    def make_room() -> bool:
        asked.append(client.pending_bytes)
        client.data_to_send()
        client.buffered(0)
        return True

    client = opened(output_bytes_max=100, make_room=make_room)
    message = Publish("t", bytes(120))
    assert all(client.forward(message) for _ in range(3))
    assert asked == [125, 125]
    assert client.has_room()
    assert asked == [125, 125, 125]


def test_after_the_end_output_has_nowhere_to_go() -> None:
    told: list[str] = []
    client = opened(output_waits=lambda: told.append("output"))
    client.send(Pingresp())
    client.lost()
    assert client.data_to_send() == []
    client.acknowledge(Acknowledgement(PUBACK, 1))
    assert told == ["output"]
