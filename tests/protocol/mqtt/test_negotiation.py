"""An MQTT 5 connection: limits of both sides, aliases, what is told of a failure, and bytes that others share."""

from collections.abc import Callable

import pytest

from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.encode import SHARED_BYTES_MIN, Encodings, encode
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.mqtt.settings import Mqtt5Settings
from embermq.protocol.mqtt.states import AUTHENTICATING, OPEN
from embermq.protocol.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Delivery,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback, pubrec
from support.clauses import v5

LEVELS = (3, 4, 5)
LIMIT = 1_000_000


def wire(*packets: Packet) -> bytes:
    return b"".join(encode(packet, MQTT_5) for packet in packets)


def connect(**fields: object) -> Connect:
    return Connect("c", protocol_level=5, **fields)  # type: ignore[arg-type]  # handed through as they are


def new(
    receive_maximum: int = 65_535,
    encodings: Encodings | None = None,
    now_us: Callable[[], int] = lambda: 0,
    shortcuts: bool = True,
    settings: Mqtt5Settings | None = None,
) -> Connection:
    return Connection(
        encodings or Encodings(is_reused=shortcuts),
        LIMIT,
        10_000_000,
        lambda: None,
        lambda: False,
        shortcuts=shortcuts,
        levels=LEVELS,
        now_us=now_us,
        settings=settings or Mqtt5Settings(receive_maximum=receive_maximum),
    )


def opened(packet: Connect | None = None, connack: Connack | None = None, **options: object) -> Connection:
    made = new(**options)  # type: ignore[arg-type]  # handed through as they are
    asked = packet or connect()
    assert made.receive_data(wire(asked)) == [asked]
    made.accepted()
    made.send(connack or Connack(False))
    made.data_to_send()
    assert made.opened() == []
    made.buffered(0)
    return made


def sent(connection: Connection) -> list[Packet]:
    data = b"".join(connection.data_to_send())
    decoder = Decoder(LIMIT, server=False, dialect=MQTT_5)
    packets = decoder.feed(data)
    assert decoder.error is None and not decoder.rest_bytes_wanted
    return packets


# -- CONNACK and the end -----------------------------------------------------------------------------------------------


@v5("MQTT-3.2.2-15", "MQTT-3.2.2-17")
def test_connack_announces_what_the_connection_takes() -> None:
    client = new(receive_maximum=20)
    client.receive_data(wire(connect()))
    client.accepted()
    client.send(Connack(True, 0, "assigned", 60, 30, "r/"))
    expected = Connack(
        True, 0, "assigned", 60, 30, "r/", receive_maximum=20, maximum_packet_size=LIMIT, topic_alias_maximum=64
    )
    assert sent(client) == [expected]


@v5("MQTT-3.1.4-1", "MQTT-4.13.1-1", "MQTT-4.13.2-1")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("10 0e 00044d515454 05 03 0000 00 000163", 0x81),
        ("10 11 00044d515454 05 02 0000 03 210000 000163", 0x82),
        ("10 14 00044d515454 05 06 0000 00 000163 00 000123 0000", 0x90),
    ],
)
def test_a_bad_connect_is_answered_with_connack(data: str, reason: int) -> None:
    client = new()
    assert client.receive_data(bytes.fromhex(data)) == []
    assert client.failure is not None and client.failure.reason == reason
    (answer,) = sent(client)
    assert isinstance(answer, Connack)
    assert answer.reason == reason and answer.reason_string


@v5("MQTT-3.1.2-2")
def test_a_later_level_is_answered_in_the_form_of_5_and_an_older_one_in_its_own() -> None:
    for level, start in ((6, "00 84"), (0x7F, "00 84"), (0x86, "00 01"), (2, "00 01")):
        client = new()
        client.receive_data(bytes.fromhex(f"10 0e 00044d515454 {level:02x} 02 0000 00 000163"))
        assert client.failure is not None and client.failure.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION
        assert client.data_to_send()[0][2:4] == bytes.fromhex(start)


@v5("MQTT-3.14.0-1")
@pytest.mark.parametrize("data", [b"\xe0\x00", b"\x00\x00", b"\x30\x04\x00\x01a\x00"])
def test_what_is_no_connect_is_not_answered(data: bytes) -> None:
    client = new()
    assert client.receive_data(data) == []
    assert client.failure is not None
    client.close(client.failure.reason)
    assert client.data_to_send() == []


@v5("MQTT-4.13.2-1", "MQTT-3.14.4-1")
def test_the_server_says_why_it_ends_an_open_connection() -> None:
    client = opened()
    assert client.close(ReasonCode.SESSION_TAKEN_OVER)
    assert sent(client) == [Disconnect(0x8E, reason_string="Session taken over")]
    assert not client.close(ReasonCode.UNSPECIFIED_ERROR)
    assert client.data_to_send() == []


def test_a_reason_that_disconnect_lacks_is_replaced() -> None:
    client = opened()
    client.close(ReasonCode.SERVER_UNAVAILABLE)
    assert sent(client) == [Disconnect(0x89, reason_string="Server busy")]


def test_the_end_that_the_client_asked_for_is_not_answered() -> None:
    client = opened()
    client.close(ReasonCode.SUCCESS)
    assert client.data_to_send() == []


@v5("MQTT-3.14.0-1")
def test_before_connack_the_answer_is_connack_and_only_one() -> None:
    client = new()
    client.receive_data(wire(connect()))
    client.close(ReasonCode.SERVER_SHUTTING_DOWN)
    assert sent(client) == [Connack(False, 0x88, reason_string="Server unavailable")]
    client = new()
    client.receive_data(wire(connect()))
    client.send(Connack(False, ReasonCode.NOT_AUTHORIZED))
    client.close(ReasonCode.NOT_AUTHORIZED)
    assert sent(client) == [Connack(False, 0x87, reason_string="Not authorized")]


# -- what is told ------------------------------------------------------------------------------------------------------


def test_a_failed_acknowledgement_has_its_reason_and_a_success_is_short() -> None:
    client = opened()
    client.acknowledge(Acknowledgement(PUBACK, 7))
    assert client.data_to_send() == [bytes.fromhex("40 02 0007")]
    client.acknowledge(Acknowledgement(PUBACK, 7, 1, ReasonCode.NO_MATCHING_SUBSCRIBERS))
    assert client.data_to_send() == [bytes.fromhex("40 03 0007 10")]
    client.acknowledge(Acknowledgement(PUBREC, 7, 1, ReasonCode.QUOTA_EXCEEDED))
    data = client.data_to_send()[0]
    assert b"Quota exceeded" in data
    assert Decoder(LIMIT, server=False, dialect=MQTT_5).feed(data) == [pubrec(7, 0x97)]


@v5("MQTT-3.1.2-29")
def test_a_client_that_asks_for_no_problem_information_gets_none() -> None:
    client = opened(connect(request_problem_information=False))
    client.acknowledge(Acknowledgement(PUBACK, 7, 1, ReasonCode.QUOTA_EXCEEDED))
    client.close(ReasonCode.KEEP_ALIVE_TIMEOUT)
    assert client.data_to_send() == [bytes.fromhex("40 03 0007 97  e0 01 8d")]


@v5("MQTT-3.4.2-2", "MQTT-3.14.2-3")
def test_a_reason_string_that_does_not_fit_is_left_out() -> None:
    client = opened(connect(maximum_packet_size=18))
    client.acknowledge(Acknowledgement(PUBACK, 7, 1, ReasonCode.QUOTA_EXCEEDED))
    client.close(ReasonCode.KEEP_ALIVE_TIMEOUT)
    assert client.data_to_send() == [bytes.fromhex("40 03 0007 97  e0 01 8d")]


def test_suback_has_only_its_own_reasons() -> None:
    client = opened()
    client.send(Suback(1, [2, ReasonCode.TOPIC_NAME_INVALID, ReasonCode.QUOTA_EXCEEDED]))
    assert sent(client) == [Suback(1, [2, 0x8F, 0x97])]


# -- messages from the client ------------------------------------------------------------------------------------------


def message(packet_id: int, qos: int = 1) -> Publish:
    return Publish("a", b"x", qos, packet_id=packet_id)


@v5("MQTT-3.3.4-7", "MQTT-3.3.4-8")
def test_more_messages_than_the_receive_maximum_are_an_error() -> None:
    client = opened(receive_maximum=2)
    assert client.receive_data(wire(message(1), Publish("a", b"x"), message(2, 2), message(2, 2))) != []
    assert client.failure is None, "a repeated identifier counts once"
    client.acknowledge(Acknowledgement(PUBACK, 1))
    assert client.receive_data(wire(message(3))) == [message(3)]
    client.acknowledge(Acknowledgement(PUBREC, 2))
    assert client.receive_data(wire(Pingreq(), message(4), Pingreq())) == [Pingreq()]
    assert client.failure is not None and client.failure.reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_what_ends_an_exchange_makes_room_for_another() -> None:
    client = opened(receive_maximum=1)
    for packet_type, reason in ((PUBACK, 0), (PUBACK, 0x97), (PUBCOMP, 0), (PUBREC, 0x97)):
        client.receive_data(wire(message(9)))
        assert client.failure is None
        client.acknowledge(Acknowledgement(packet_type, 9, 1, reason))


def test_messages_of_the_session_before_count() -> None:
    client = opened(receive_maximum=2)
    assert client.negotiation is not None
    client.negotiation.resumed({5, 6})
    client.receive_data(wire(message(5, 2)))
    assert client.failure is None
    client.receive_data(wire(message(7)))
    assert client.failure is not None


@v5("MQTT-3.3.2-7")
def test_aliases_of_a_client_are_resolved_also_behind_connect() -> None:
    client = new()
    named = WirePublish(Publish("a", b"1"), 1)
    by_alias = WirePublish(Publish("", b"2"), 1)
    assert client.receive_data(wire(connect(), named)) == [connect()]
    client.accepted()
    client.send(Connack(False))
    assert client.opened() == [Publish("a", b"1")]
    assert client.receive_data(wire(by_alias)) == [Publish("a", b"2")]
    assert client.receive_data(wire(WirePublish(Publish("a", b""), 65))) == []
    assert client.failure is not None and client.failure.reason == ReasonCode.TOPIC_ALIAS_INVALID


# -- messages to the client --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shortcuts", [True, False])
@pytest.mark.parametrize("payload", [b"", b"hi", b"x" * 600, bytes(SHARED_BYTES_MIN)], ids=len)
@pytest.mark.parametrize("properties", [b"", b"\x01\x01"])
def test_every_delivery_is_written_as_it_is(shortcuts: bool, payload: bytes, properties: bytes) -> None:
    client = opened(shortcuts=shortcuts)
    message = Publish("a/b", payload, 2, True, properties=properties)
    for _ in range(2):
        assert client.forward(message)
        assert client.deliver(Delivery([message], 0, True))
        assert client.deliver(Delivery([message], 1, False, False, 258))
        assert client.deliver(Delivery([message], 2, True, True, 259))
        expected = [
            Publish("a/b", payload, properties=properties),
            Publish("a/b", payload, 0, True, properties=properties),
            Publish("a/b", payload, 1, packet_id=258, properties=properties),
            Publish("a/b", payload, 2, True, True, 259, properties),
        ]
        assert b"".join(client.data_to_send()) == wire(*expected)
        assert client.packets_taken == 4
        client.buffered(0)


@v5("MQTT-3.3.4-3", "MQTT-3.3.4-4")
def test_identifiers_of_subscriptions_are_part_of_the_delivery() -> None:
    client = opened()
    message = Publish("a", b"x")
    for qos in (0, 1):
        client.deliver(Delivery([message], qos, packet_id=qos, subscription_ids=(1, 300)))
        client.forward(message)
        with_ids, plain = sent(client)
        assert with_ids == WirePublish(Publish("a", b"x", qos, packet_id=qos), 0, (1, 300))
        assert plain == Publish("a", b"x")


@v5("MQTT-3.3.2-6")
def test_the_rest_of_the_expiry_is_sent() -> None:
    now_us = 1_000_000
    client = opened(now_us=lambda: now_us)
    message = Publish("a", b"x", properties=bytes.fromhex("02 0000000a 01 01"), expires_us=11_000_000)
    client.forward(message)
    now_us = 4_500_000
    client.forward(message)
    client.deliver(Delivery([message], 1, packet_id=1))
    first, second, third = sent(client)
    assert isinstance(first, WirePublish) and isinstance(second, WirePublish) and isinstance(third, WirePublish)
    assert first.message.properties == bytes.fromhex("02 0000000a 01 01")
    assert second.message.properties == third.message.properties == bytes.fromhex("02 00000007 01 01")


@v5("MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_a_message_that_is_too_large_for_a_client_is_dropped_for_it_alone() -> None:
    encodings = Encodings()
    small, large = opened(connect(maximum_packet_size=20), encodings=encodings), opened(encodings=encodings)
    fits, too_large = Publish("a", bytes(12)), Publish("a", bytes(16))
    for message, is_taken in ((fits, True), (too_large, False)):
        for client in (large, small, large):
            taken = is_taken or client is large
            assert client.forward(message), "at QoS 0 it counts as sent"
            assert client.deliver(Delivery([message], 1, packet_id=1)) == taken
            assert len(sent(client)) == (2 if taken else 0)
    assert (small.dropped_too_large, large.dropped_too_large) == (2, 0)


@v5("MQTT-3.1.2-26", "MQTT-3.1.2-27", "MQTT-3.3.2-7")
def test_a_client_that_allows_aliases_gets_them() -> None:
    plain, client = opened(), opened(connect(topic_alias_maximum=1))
    first, second = Publish("a-long-name-1", b"x"), Publish("a-long-name-2", b"x")
    for message in (first, first, second, second, first):
        client.forward(message)
        plain.forward(message)
    client.deliver(Delivery([first], 1, packet_id=3))
    assert sent(client) == [
        WirePublish(first, 1),
        WirePublish(Publish("", b"x"), 1),
        WirePublish(second, 1),
        WirePublish(Publish("", b"x"), 1),
        WirePublish(first, 1),
        WirePublish(Publish("", b"x", 1, packet_id=3), 1),
    ]
    assert sent(plain) == [first, first, second, second, first]


def test_a_dropped_message_sets_no_alias() -> None:
    client = opened(connect(topic_alias_maximum=5, maximum_packet_size=40))
    client.forward(Publish("a-long-name-1", bytes(40)))
    client.forward(Publish("a-long-name-1", b"x"))
    assert sent(client) == [WirePublish(Publish("a-long-name-1", b"x"), 1)]


# -- AUTH --------------------------------------------------------------------------------------------------------------


def test_auth_packets_are_for_the_shell() -> None:
    client = opened(connect(authentication_method="M"))
    again = Auth(0x19, "M", b"1")
    assert client.receive_data(wire(Pingreq(), again, Pingreq())) == [Pingreq(), Pingreq()]
    assert client.auths == [again]


def test_auths_of_several_reads_are_gathered_for_one_connection_only() -> None:
    steps = [Auth(0x18, "M", b"%d" % number) for number in range(4)]
    client = new()
    client.receive_data(wire(connect(authentication_method="M"), *steps[:2]))
    client.receive_data(wire(*steps[2:]))
    assert client.auths == steps and new().auths == []


@v5("MQTT-3.1.2-30")
def test_during_authentication_only_auth_and_disconnect_may_come() -> None:
    asked = connect(authentication_method="M", authentication_data=b"1")
    step = Auth(0x18, "M", b"2")
    client = new()
    assert client.receive_data(wire(asked, step)) == [asked]
    assert client.auths == [step] and client.state == AUTHENTICATING
    assert client.receive_data(wire(Pingreq())) == []
    assert client.failure is not None and client.failure.reason == ReasonCode.PROTOCOL_ERROR
    client.close(client.failure.reason)
    assert sent(client) == [Connack(False, 0x82, reason_string="Protocol error")]
    client = new()
    client.receive_data(wire(asked))
    client.receive_data(wire(Disconnect()))
    assert client.failure is not None
    client.close(client.failure.reason)
    assert client.data_to_send() == []


@v5("MQTT-4.12.0-5")
def test_connack_has_the_method_and_the_last_data() -> None:
    client = new()
    client.receive_data(wire(connect(authentication_method="M")))
    assert client.negotiation is not None
    client.negotiation.final_data = b"v"
    client.accepted()
    client.send(Connack(False))
    (answer,) = sent(client)
    assert isinstance(answer, Connack)
    assert (answer.authentication_method, answer.authentication_data) == ("M", b"v")
    client.opened()
    assert client.state == OPEN
    assert client.receive_data(wire(puback(1))) == [puback(1)]


ELSEWHERE = Mqtt5Settings(server_reference="other.example:1883")


@pytest.mark.parametrize("reason", [ReasonCode.SERVER_SHUTTING_DOWN, ReasonCode.SERVER_BUSY])
def test_a_client_is_told_of_another_server_when_this_one_ends_its_connection(reason: ReasonCode) -> None:
    client = opened(settings=ELSEWHERE)
    client.close(reason)
    (packet,) = sent(client)
    assert isinstance(packet, Disconnect)
    assert (packet.reason, packet.server_reference) == (ReasonCode.USE_ANOTHER_SERVER, "other.example:1883")
    small = opened(connect(maximum_packet_size=20), settings=ELSEWHERE)
    small.close(reason)
    assert sent(small) == [Disconnect(ReasonCode.USE_ANOTHER_SERVER)]


def test_other_ends_do_not_name_another_server() -> None:
    client = opened(settings=ELSEWHERE)
    client.close(ReasonCode.SESSION_TAKEN_OVER)
    (packet,) = sent(client)
    assert isinstance(packet, Disconnect)
    assert (packet.reason, packet.server_reference) == (ReasonCode.SESSION_TAKEN_OVER, "")


@pytest.mark.parametrize(
    ("maximum", "reference", "has_string"), [(0, True, True), (30, True, False), (12, False, False)]
)
def test_a_refused_client_is_told_of_another_server_as_far_as_it_fits(
    maximum: int, reference: bool, has_string: bool
) -> None:
    client = new(settings=ELSEWHERE)
    client.receive_data(wire(connect(maximum_packet_size=maximum)))
    client.send(Connack(False, ReasonCode.SERVER_UNAVAILABLE))
    (packet,) = sent(client)
    assert isinstance(packet, Connack)
    assert packet.reason == ReasonCode.USE_ANOTHER_SERVER
    assert (bool(packet.server_reference), bool(packet.reason_string)) == (reference, has_string)


@pytest.mark.parametrize("maximum", [0, 3])
def test_the_server_sets_no_more_aliases_than_its_setting(maximum: int) -> None:
    client = opened(connect(topic_alias_maximum=10), settings=Mqtt5Settings(outgoing_aliases_max=maximum))
    for number in range(5):
        assert client.deliver(Delivery([Publish(f"a-long-name-{number}", b"")], 1, packet_id=1))
    used = {packet.topic_alias if isinstance(packet, WirePublish) else 0 for packet in sent(client)}
    assert used == (set(range(1, maximum + 1)) or {0})


def test_what_connack_announces_is_what_the_settings_say() -> None:
    client = new(settings=Mqtt5Settings(receive_maximum=9, topic_alias_maximum=8))
    client.receive_data(wire(connect()))
    client.send(Connack(False))
    (packet,) = sent(client)
    assert isinstance(packet, Connack)
    assert (packet.receive_maximum, packet.topic_alias_maximum) == (9, 8)


def test_how_often_a_client_may_re_authenticate_in_a_minute() -> None:
    negotiation = opened(settings=Mqtt5Settings(reauthentications_max=2)).negotiation
    assert negotiation is not None
    second_us = 1_000_000
    began_us = 1_000_000 * second_us
    assert [negotiation.reauthentication_refusal(began_us + at * second_us) for at in (0, 59)] == [None, None]
    refused = negotiation.reauthentication_refusal(began_us + 59 * second_us)
    assert refused is not None and refused.reason == ReasonCode.QUOTA_EXCEEDED
    assert negotiation.reauthentication_refusal(began_us + 60 * second_us) is None
