"""The client's side against the server's, without a socket: exchanges, the window, what outlives a connection."""

from random import Random

import pytest

from embermq.protocol.errors import PeerError, Refused
from embermq.protocol.mqtt.client_connection import Acknowledged, ClientConnection
from embermq.protocol.mqtt.connection import Connection
from embermq.protocol.mqtt.dialect import LEVELS, MQTT_5
from embermq.protocol.mqtt.encode import Encodings, encode
from embermq.protocol.mqtt.settings import Mqtt5Settings
from embermq.protocol.packets import (
    PACKET_IDS,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Delivery,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from embermq.protocol.reasons import ReasonCode
from support.acknowledgements import puback, pubcomp, pubrec, pubrel, singles
from support.vectors.catalog import REJECTED, VECTORS
from support.vectors.vector import Rejected

EXPIRY_60_S = bytes.fromhex("02 0000003c")


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5"])
def level(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def joined(side: Connection | ClientConnection) -> bytes:
    out = side.data_to_send()
    return out if isinstance(out, bytes) else b"".join(out)


class Pair:
    """A client and a server that the test plays: `to_server` and `to_client` carry what was gathered."""

    def __init__(self, level: int, client: ClientConnection | None = None, receive_maximum: int = 65_535) -> None:
        self.level = level
        self.client = client or ClientConnection()
        self.settings = Mqtt5Settings(receive_maximum=receive_maximum)
        self.server = self._server()

    def _server(self) -> Connection:
        return Connection(
            Encodings(), 1_000, 1_000_000, lambda: None, lambda: False, levels=LEVELS, settings=self.settings
        )

    def connect(
        self, session_present: bool = False, receive_maximum: int = 65_535, topic_alias_maximum: int = 0
    ) -> list[Packet]:
        """Connect, again if there was a connection before; what CONNACK leads to."""
        self.server = self._server()
        self.client.connect(
            Connect(
                "c",
                not session_present,
                receive_maximum=receive_maximum,
                protocol_level=self.level,
                topic_alias_maximum=topic_alias_maximum,
            )
        )
        (connect,) = self.to_server()
        assert isinstance(connect, Connect) and connect.clean_start != session_present
        self.server.accepted()
        self.server.send(Connack(session_present))
        assert self.server.opened() == []
        return self.to_client()[1:]

    def to_server(self) -> list[Packet]:
        packets = self.server.receive_data(joined(self.client))
        assert self.server.failure is None
        return singles(packets)

    def to_client(self) -> list[Packet]:
        packets = self.client.receive_data(joined(self.server))
        assert self.client.failure is None
        return packets

    def answered(self, packet_type: int, packet_id: int, reason: int = 0) -> list[Packet]:
        self.server.acknowledge(Acknowledgement(packet_type, packet_id, 1, reason))
        return self.to_client()

    def delivered(self, message: Publish, packet_id: int = 0, dup: bool = False) -> list[Packet]:
        assert self.server.deliver(Delivery([message], message.qos, message.retain, dup, packet_id))
        return self.to_client()


@pytest.fixture
def pair(level: int) -> Pair:
    made = Pair(level)
    made.connect()
    return made


def message(number: int, qos: int = 1, packet_id: int = 0, dup: bool = False) -> Publish:
    return Publish("t", b"%d" % number, qos, False, dup, packet_id)


# -- the exchanges -----------------------------------------------------------------------------------------------------


def test_a_connection_is_open_once_the_server_has_accepted_it(level: int) -> None:
    pair = Pair(level)
    assert not pair.client.is_open
    assert pair.connect() == []
    assert pair.client.is_open and pair.client.connack is not None


def test_a_message_at_qos_0_is_sent_and_not_kept(pair: Pair) -> None:
    pair.client.publish(message(1, 0))
    assert pair.to_server() == [message(1, 0)]
    assert pair.client.unacknowledged == 0


def test_a_message_at_qos_1_is_kept_until_puback(pair: Pair) -> None:
    pair.client.publish(message(1))
    assert pair.to_server() == [message(1, 1, 1)]
    assert pair.client.unacknowledged == 1
    assert pair.answered(PUBACK, 1) == [Acknowledged(message(1, 1, 1), 0)]
    assert pair.client.unacknowledged == 0


def test_a_message_at_qos_2_is_kept_until_pubcomp(pair: Pair) -> None:
    pair.client.publish(message(1, 2))
    assert pair.to_server() == [message(1, 2, 1)]
    assert pair.answered(PUBREC, 1) == []
    assert pair.to_server() == [pubrel(1)]
    assert pair.client.unacknowledged == 1
    assert pair.answered(PUBCOMP, 1) == [Acknowledged(message(1, 2, 1), 0)]
    assert pair.client.unacknowledged == 0


@pytest.mark.parametrize(("qos", "packet_type"), [(1, PUBACK), (2, PUBREC)])
def test_a_refusal_ends_the_exchange_with_its_reason(qos: int, packet_type: int) -> None:
    pair = Pair(5)
    pair.connect()
    pair.client.publish(message(1, qos))
    pair.to_server()
    refused = Acknowledged(message(1, qos, 1), ReasonCode.QUOTA_EXCEEDED)
    assert pair.answered(packet_type, 1, ReasonCode.QUOTA_EXCEEDED) == [refused]
    assert pair.to_server() == [] and pair.client.unacknowledged == 0


def test_properties_travel_in_both_directions() -> None:
    pair = Pair(5, ClientConnection(now_us=lambda: 1_000_000))
    pair.connect()
    sent = Publish("t", b"x", 0, True, properties=EXPIRY_60_S)
    pair.client.publish(sent)
    (found,) = pair.to_server()
    assert isinstance(found, Publish) and (found.properties, found.retain) == (EXPIRY_60_S, True)
    (got,) = pair.delivered(sent)
    assert isinstance(got, Publish) and (got.properties, got.expires_us) == (EXPIRY_60_S, 61_000_000)


def test_the_server_may_send_as_many_topic_aliases_as_the_client_takes() -> None:
    pair = Pair(5)
    pair.connect(topic_alias_maximum=3)
    sent = Publish("a/long/topic/name", b"x")
    assert pair.delivered(sent) + pair.delivered(sent) == [sent, sent]


def test_messages_are_acknowledged_when_the_user_says_so(pair: Pair) -> None:
    (none,) = pair.delivered(message(0, 0))
    (once,) = pair.delivered(message(1, 1), 7)
    (twice,) = pair.delivered(message(2, 2), 8)
    assert (none, once, twice) == (message(0, 0), message(1, 1, 7), message(2, 2, 8))
    assert pair.to_server() == []
    for got in (twice, once, none, once):
        assert isinstance(got, Publish)
        pair.client.acknowledge(got)
    assert pair.to_server() == [pubrec(8), puback(7)]
    assert pair.answered(PUBREL, 8) == []
    assert pair.to_server() == [pubcomp(8)]


def test_a_message_at_qos_2_is_given_out_once(pair: Pair) -> None:
    (got,) = pair.delivered(message(1, 2), 8)
    assert pair.delivered(message(1, 2), 8, True) == []
    assert pair.to_server() == []  # PUBREC waits for the user
    assert isinstance(got, Publish)
    pair.client.acknowledge(got)
    assert pair.delivered(message(1, 2), 8, True) == []
    assert pair.to_server() == [pubrec(8), pubrec(8)]
    pair.answered(PUBREL, 8)
    assert pair.delivered(message(2, 2), 8) == [message(2, 2, 8)]


def test_unknown_packet_identifiers_are_answered_as_the_version_allows(level: int) -> None:
    pair = Pair(level)
    pair.connect()
    assert pair.answered(PUBACK, 9) + pair.answered(PUBCOMP, 9) + pair.answered(PUBREC, 9) == []
    assert pair.to_server() == ([pubrel(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)] if level == 5 else [])
    pair.answered(PUBREL, 9)
    assert pair.to_server() == [pubcomp(9, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if level == 5 else 0)]


def test_subscribing_pinging_and_disconnecting(pair: Pair) -> None:
    requests = [SubscriptionRequest("a/#", 1), SubscriptionRequest("b", 2)]
    packet_id = pair.client.subscribe(requests)
    pair.client.ping()
    assert pair.to_server() == [Subscribe(packet_id, requests), Pingreq()]
    pair.server.send(Suback(packet_id, [1, 2]))
    pair.server.send(Pingresp())
    assert pair.to_client() == [Suback(packet_id, [1, 2]), Pingresp()]
    pair.client.disconnect()
    assert pair.to_server() == [Disconnect()]
    assert not pair.client.is_open


def test_the_servers_disconnect_is_the_last_that_counts() -> None:
    pair = Pair(5)
    pair.connect()
    pair.server.close(ReasonCode.SERVER_SHUTTING_DOWN)
    (end,) = pair.to_client()
    assert isinstance(end, Disconnect) and end.reason == ReasonCode.SERVER_SHUTTING_DOWN
    assert not pair.client.is_open
    assert pair.client.receive_data(encode(Pingresp())) == []


# -- the window and other limits ---------------------------------------------------------------------------------------


def test_no_more_than_the_receive_maximum_of_the_server_is_unacknowledged() -> None:
    pair = Pair(5, receive_maximum=2)
    pair.connect()
    assert pair.client.window == 2
    for number in range(1, 5):
        pair.client.publish(message(number, 2 if number == 1 else 1))
    assert pair.to_server() == [message(1, 2, 1), message(2, 1, 2)]
    pair.answered(PUBREC, 1)
    assert pair.to_server() == [pubrel(1)]  # the place is free with PUBCOMP only
    pair.answered(PUBCOMP, 1)
    assert pair.to_server() == [message(3, 1, 3)]
    pair.answered(PUBACK, 2)
    assert pair.to_server() == [message(4, 1, 4)]


def test_an_acknowledgement_of_what_was_not_sent_yet_does_not_count(level: int) -> None:
    pair = Pair(level, ClientConnection(window_max=1))
    pair.connect()
    pair.client.publish(message(1))
    pair.client.publish(message(2))
    pair.to_server()
    assert pair.answered(PUBACK, 2) == []
    assert pair.client.unacknowledged == 2
    pair.answered(PUBACK, 1)
    assert pair.to_server() == [message(2, 1, 2)]


def test_packet_identifiers_in_use_are_passed_over(pair: Pair) -> None:
    pair.client.publish(message(1))
    for number in range(2, PACKET_IDS + 1):
        pair.client.publish(message(number))
        pair.client.data_to_send()
        pair.client.receive_data(encode(puback(number)))
    pair.client.publish(message(0))
    assert pair.client.subscribe([SubscriptionRequest("a")]) == 3  # 1 is in use, 2 was just taken
    assert pair.client.unacknowledged == 2


def test_there_are_no_more_messages_than_packet_identifiers() -> None:
    client = ClientConnection()
    for number in range(PACKET_IDS):
        client.publish(message(number))
    with pytest.raises(OverflowError, match="every packet identifier is in use"):
        client.publish(message(0))


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_that_is_larger_than_the_server_takes_is_refused(qos: int) -> None:
    pair = Pair(5)
    pair.connect()
    head = len(encode(Publish("t", bytes(900), qos, packet_id=1), pair.server.dialect)) - 900
    pair.client.publish(Publish("t", bytes(1_000 - head), qos))
    assert len(pair.client.data_to_send()) == 1_000
    with pytest.raises(Refused) as refused:
        pair.client.publish(Publish("t", bytes(1_001 - head), qos))
    assert refused.value.reason == ReasonCode.PACKET_TOO_LARGE
    assert pair.client.data_to_send() == b"" and pair.client.unacknowledged == qos


def test_a_message_that_waited_and_is_too_large_is_refused_with_connack() -> None:
    pair = Pair(5)
    large = Publish("t", bytes(2_000), 1)
    pair.client.publish(large)
    pair.client.publish(message(2))
    (refused,) = pair.connect()
    assert isinstance(refused, Acknowledged) and refused.reason == ReasonCode.PACKET_TOO_LARGE
    assert pair.to_server() == [message(2, 1, 2)]


def test_a_server_that_exceeds_the_receive_maximum_of_the_client_fails() -> None:
    pair = Pair(5)
    pair.connect(receive_maximum=2)
    for packet_id in (1, 2, 3):
        pair.server.deliver(Delivery([message(1)], 1, False, False, packet_id))
    assert len(pair.client.receive_data(joined(pair.server))) == 2
    assert pair.client.failure is not None
    assert pair.client.failure.reason == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


# -- the next connection -----------------------------------------------------------------------------------------------


def test_what_is_unacknowledged_is_sent_again_with_dup_and_its_identifier(pair: Pair) -> None:
    for number, qos in ((1, 1), (2, 2), (3, 2), (4, 1)):
        pair.client.publish(message(number, qos))
    pair.to_server()
    pair.answered(PUBREC, 3)
    pair.answered(PUBACK, 1)
    assert pair.connect(session_present=True) == []
    assert pair.to_server() == [pubrel(3), message(2, 2, 2, True), message(4, 1, 4, True)]
    assert pair.answered(PUBCOMP, 3) == [Acknowledged(message(3, 2, 3, True), 0)]


def test_what_was_not_sent_has_no_dup_in_the_next_connection(level: int) -> None:
    pair = Pair(level, ClientConnection(window_max=1))
    pair.connect()
    for number in (1, 2, 3):
        pair.client.publish(message(number))
    pair.to_server()
    for _ in range(3):  # the second message waits in each of them
        pair.connect(session_present=True)
        assert pair.to_server() == [message(1, 1, 1, True)]
    pair.answered(PUBACK, 1)
    assert pair.to_server() == [message(2, 1, 2)]


def test_a_server_without_the_session_gets_new_messages_and_none_that_it_had_taken(pair: Pair) -> None:
    for number in (1, 2):
        pair.client.publish(message(number, 2))
    pair.to_server()
    pair.answered(PUBREC, 1)
    assert pair.connect(session_present=False) == [Acknowledged(message(1, 2, 1), 0)]
    assert pair.to_server() == [message(2, 2, 2)]


def test_messages_published_between_two_connections_are_sent_in_their_order(pair: Pair) -> None:
    pair.client.publish(message(1))
    pair.to_server()
    pair.client.connect(Connect("c", False, protocol_level=pair.level))
    pair.client.publish(message(2))
    pair.client.publish(message(3, 0))  # not kept
    pair.connect(session_present=True)
    assert pair.to_server() == [message(1, 1, 1, True), message(2, 1, 2)]


def test_output_of_the_connection_before_is_dropped(pair: Pair) -> None:
    pair.client.ping()
    pair.client.publish(message(1))
    pair.connect(session_present=True)
    assert pair.to_server() == [message(1, 1, 1, True)]
    assert pair.client.pending_bytes == 0


def test_the_identifiers_of_qos_2_messages_outlive_a_connection_with_the_session(pair: Pair) -> None:
    (taken,) = pair.delivered(message(1, 2), 8)
    (open_,) = pair.delivered(message(2, 2), 9)
    assert isinstance(taken, Publish) and isinstance(open_, Publish)
    pair.client.acknowledge(taken)
    pair.connect(session_present=True)
    assert pair.delivered(message(1, 2), 8, True) == []
    assert pair.delivered(message(2, 2), 9, True) == [message(2, 2, 9, True)]
    pair.client.acknowledge(open_)  # it came over the connection before
    assert pair.to_server() == [pubrec(8)]
    pair.connect(session_present=False)
    assert pair.delivered(message(3, 2), 8) == [message(3, 2, 8)]


def test_a_session_may_go_on_in_another_version() -> None:
    pair = Pair(5)
    pair.connect()
    pair.client.publish(Publish("t", b"x", 1, properties=EXPIRY_60_S))
    pair.to_server()
    pair.level = 4
    pair.connect(session_present=True)
    assert pair.to_server() == [Publish("t", b"x", 1, dup=True, packet_id=1)]


# -- bytes -------------------------------------------------------------------------------------------------------------


def stream(level: int) -> bytes:
    """What a server sends in a connection with two messages in each direction."""
    pair = Pair(level)
    pair.client.connect(Connect("c", protocol_level=level))
    pair.to_server()
    pair.server.accepted()
    pair.server.send(Connack(False))
    pair.server.opened()
    pair.server.acknowledge(Acknowledgement(PUBACK, 1, 1, ReasonCode.NO_MATCHING_SUBSCRIBERS))
    pair.server.acknowledge(Acknowledgement(PUBREC, 2))
    pair.server.deliver(Delivery([Publish("a/b", bytes(200), properties=EXPIRY_60_S)], 1, True, False, 5))
    pair.server.deliver(Delivery([message(1, 2)], 2, False, False, 6))
    pair.server.acknowledge(Acknowledgement(PUBCOMP, 2))
    pair.server.send(Pingresp())
    return joined(pair.server)


def received(level: int, parts: list[bytes]) -> tuple[list[Packet], bytes]:
    """What a client with two messages of its own returns and sends."""
    client = ClientConnection()
    client.publish(message(1))
    client.publish(message(2, 2))
    client.connect(Connect("c", protocol_level=level))
    events = [event for part in parts for event in client.receive_data(part)]
    assert client.failure is None
    return events, client.data_to_send()


def test_bytes_may_be_cut_anywhere(level: int) -> None:
    data = stream(level)
    # As soon as CONNACK is there both messages are sent, so that the acknowledgements behind it count.
    connack = data[1] + 2
    whole = received(level, [data[:connack], data[connack:]])
    assert [type(event) for event in whole[0]] == [Connack, Acknowledged, Publish, Publish, Acknowledged, Pingresp]
    for cut in range(connack + 1, len(data)):
        assert received(level, [data[:connack], data[connack:cut], data[cut:]]) == whole
    for cut in range(connack):
        assert received(level, [data[:cut], data[cut:connack], data[connack:]]) == whole
    assert received(level, [data[at : at + 1] for at in range(len(data))]) == whole


def opened(level: int) -> ClientConnection:
    client = ClientConnection()
    client.connect(Connect("c", protocol_level=level))
    client.receive_data(bytes.fromhex("20 03 00 00 00" if level == 5 else "20 02 00 00"))
    assert client.is_open
    return client


@pytest.mark.parametrize("vector", [one for one in REJECTED if "server" in one.senders], ids=lambda one: one.id)
def test_a_bad_packet_fails_with_its_error_behind_what_was_good(vector: Rejected) -> None:
    client = opened(vector.level)
    assert client.receive_data(encode(Pingresp()) + vector.wire) == [Pingresp()]
    assert type(client.failure) is vector.error
    assert client.failure is not None and client.failure.reason == vector.reason_code
    assert client.receive_data(encode(Pingresp())) == []
    client.data_to_send()
    client.disconnect(client.failure.reason)
    assert client.data_to_send() == (encode(Disconnect(vector.reason_code), MQTT_5) if vector.level == 5 else b"")


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_and_changed_packets_never_raise(level: int, seed: int) -> None:
    random = Random(seed)
    good = [one.wire for one in VECTORS if one.level == level and "server" in one.senders and len(one.wire) < 1_000]
    for _ in range(100):
        client = opened(level) if random.random() < 0.8 else ClientConnection()
        if not client.is_open:
            client.connect(Connect("c", protocol_level=level))
        for number in range(4):
            client.publish(message(number, 1 + number % 2))
        data = bytearray(b"".join(random.choices(good, k=5)))
        for _ in range(random.randrange(4)):
            data[random.randrange(len(data))] = random.randrange(256)
        while data:
            size = random.randrange(1, 40)
            for event in client.receive_data(bytes(data[:size])):
                if isinstance(event, Publish):
                    client.acknowledge(event)
            del data[:size]
        assert client.failure is None or isinstance(client.failure, PeerError)
        client.connect(Connect("c", False, protocol_level=level))
        client.receive_data(bytes.fromhex("20 03 01 00 00" if level == 5 else "20 02 01 00"))
        assert client.is_open


@pytest.mark.parametrize(
    ("data", "reason"),
    [("20 02 00 01", ReasonCode.UNSUPPORTED_PROTOCOL_VERSION), ("20 02 00 05", ReasonCode.NOT_AUTHORIZED)],
)
def test_an_older_server_refuses_mqtt_5_in_its_own_form(data: str, reason: int) -> None:
    for cut in range(5):
        client = ClientConnection()
        client.connect(Connect("c", protocol_level=5))
        wire = bytes.fromhex(data)
        assert client.receive_data(wire[:cut]) + client.receive_data(wire[cut:]) == [Connack(False, reason)]
        assert not client.is_open and client.failure is None


@pytest.mark.parametrize("data", ["d0 00", "20 02 00 00 20 02 00 00", "48 54 54 50 2f"])
@pytest.mark.parametrize("asked", [4, 5])
def test_a_server_that_does_not_begin_with_one_connack_fails(data: str, asked: int) -> None:
    client = ClientConnection()
    client.connect(Connect("c", protocol_level=asked))
    client.receive_data(bytes.fromhex(data))
    assert isinstance(client.failure, PeerError)


def test_auth_may_come_before_connack() -> None:
    client = ClientConnection()
    client.connect(Connect("c", protocol_level=5, authentication_method="m"))
    auth = Auth(ReasonCode.CONTINUE_AUTHENTICATION, "m", b"x")
    assert client.receive_data(encode(auth, MQTT_5)) == [auth]
    assert not client.is_open
