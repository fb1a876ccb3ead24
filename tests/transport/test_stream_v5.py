"""A client of MQTT 5 at a server that offers it: the handshake, AUTH, limits, and the reason before the end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from embermq.broker.access import READ, Access, AllowAll, Exchange, ExchangeAnswer, Grant, Identity
from embermq.broker.limits import Limits
from embermq.protocol.errors import Refused
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import LEVELS_BEFORE_5, MQTT_5
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.readers import WirePublish
from embermq.protocol.mqtt.settings import Mqtt5Settings
from embermq.protocol.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    SubscriptionRequest,
    Will,
)
from embermq.protocol.reasons import ReasonCode
from embermq.store.engines.memory import MemoryStore
from embermq.transport.server import Server
from support.acknowledgements import puback, pubrec, singles
from support.clauses import v5
from support.transports import LONG_TURN_S, Peer, turn


class Client:
    """A peer that speaks MQTT 5."""

    def __init__(self, server: Server) -> None:
        self.peer = Peer(server)

    async def send(self, *packets: Packet) -> list[Packet]:
        """The answers, when the turn has ended."""
        self.peer.connection.data_received(b"".join(encode(packet, MQTT_5) for packet in packets))
        await turn()
        return self.packets()

    def packets(self) -> list[Packet]:
        decoder = Decoder(1 << 28, server=False, dialect=MQTT_5)
        found = decoder.feed(b"".join(self.peer.writes))
        assert decoder.error is None
        self.peer.writes.clear()
        return singles(found)


class TwoSteps(Exchange):
    """The client sends 1, is sent 2, sends 3, and is sent 4."""

    def __init__(self, client_id: str) -> None:
        super().__init__("two steps")
        self.client_id = client_id

    def first_answer(self, data: bytes | None, nonce: bytes) -> ExchangeAnswer:
        if data != b"1":
            raise Refused("not 1", ReasonCode.NOT_AUTHORIZED)
        return ExchangeAnswer(b"2")

    def next_answer(self, data: bytes | None) -> ExchangeAnswer:
        if data != b"3":
            raise Refused("not 3", ReasonCode.NOT_AUTHORIZED)
        return ExchangeAnswer(b"4", Identity("ann", self.client_id))


class TwoStepsAccess(Access):
    def __init__(self) -> None:
        super().__init__(slow=False, unrestricted=True)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        raise Refused("a method is needed", ReasonCode.BAD_USER_NAME_OR_PASSWORD)

    def begin_exchange(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        if method != "two steps":
            return super().begin_exchange(method, client_id, certificate_name)
        return TwoSteps(client_id)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True


Scenario = Callable[[Server], Awaitable[None]]


def run(
    scenario: Scenario,
    access: Access | None = None,
    receive_maximum: int = 65_535,
    mqtt5: dict[str, Any] | None = None,
    response_information: Grant | None = None,
    **limits: int,
) -> None:
    async def whole() -> None:
        server = Server(
            store=MemoryStore(),
            access=access or AllowAll(),
            limits=Limits(**limits),
            sys_interval_s=0,
            levels=(3, 4, 5),
            mqtt5=Mqtt5Settings(receive_maximum=receive_maximum, **(mqtt5 or {})),
            response_information=response_information,
            long_turn_s=LONG_TURN_S,
        )
        await server.start()
        await scenario(server)
        assert server.core.counters.internal_errors == 0

    asyncio.run(whole())


def connect(**fields: object) -> Connect:
    return Connect(str(fields.pop("client_id", "c")), protocol_level=5, **fields)  # type: ignore[arg-type]


def subscribe(topic_filter: str, qos: int = 0) -> Subscribe:
    return Subscribe(1, [SubscriptionRequest(topic_filter, qos)])


def reason_of(packets: list[Packet]) -> int:
    (packet,) = packets
    assert isinstance(packet, (Connack, Disconnect))
    return packet.reason


@v5("MQTT-3.1.4-5", "MQTT-3.2.0-1")
def test_a_client_connects_publishes_and_is_answered() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        (connack,) = await client.send(connect())
        assert isinstance(connack, Connack) and connack.reason == 0
        assert connack.maximum_packet_size == server.limits.packet_bytes_max
        assert await client.send(Pingreq()) == [Pingresp()]
        await client.send(subscribe("t", 1))
        message = Publish("t", b"x", 1, packet_id=7, properties=b"\x01\x01")
        answers = await client.send(message)
        assert puback(7) in answers
        assert Publish("t", b"x", 1, packet_id=1, properties=b"\x01\x01") in answers

    run(scenario)


def test_without_level_5_the_answer_is_that_of_311() -> None:
    async def whole() -> None:
        server = Server(
            store=MemoryStore(), access=AllowAll(), limits=Limits(), sys_interval_s=0, levels=LEVELS_BEFORE_5
        )
        await server.start()
        peer = Peer(server)
        peer.connection.data_received(encode(connect(), MQTT_5))
        await turn()
        assert b"".join(peer.writes) == bytes.fromhex("20 02 00 01")
        assert peer.ended

    asyncio.run(whole())


@v5("MQTT-3.1.0-2", "MQTT-4.13.1-1", "MQTT-3.3.4-9", "MQTT-3.14.4-2")
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (encode(connect(), MQTT_5), 0x82),
        (b"\x00\x00", 0x81),
        (bytes.fromhex("30 06 0003612f23 00"), 0x90),
        (encode(WirePublish(Publish("a", b""), 65), MQTT_5), 0x94),
        (encode(WirePublish(Publish("", b""), 1), MQTT_5), 0x82),
        (encode(Publish("a", bytes(1_000)), MQTT_5), 0x95),
        (b"".join(encode(Publish("a", b"", 2, packet_id=n), MQTT_5) for n in (1, 2, 3)), 0x93),
        (encode(Auth(0x19, "M"), MQTT_5), 0x82),
        (encode(Publish("a", b"\xff", properties=b"\x01\x01"), MQTT_5), 0x99),
    ],
    ids=["connect", "type", "topic", "alias", "unknown-alias", "size", "receive-maximum", "auth", "payload-format"],
)
def test_the_reason_is_said_before_the_end(bad: bytes, reason: int) -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(connect())
        client.peer.connection.data_received(bad)
        await turn()
        last = client.packets()[-1]
        assert isinstance(last, Disconnect) and last.reason == reason
        assert client.peer.ended == "closed"
        assert server.core.counters.protocol_errors == 1

    run(scenario, receive_maximum=2, packet_bytes_max=500)


TEXT = b"\x01\x01"  # Payload Format Indicator 1


def test_a_payload_that_is_not_the_announced_text_is_refused_and_the_session_goes_on() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(connect())
        await client.send(subscribe("#", 1))
        wrong = Publish("t", b"a\xff", 1, packet_id=7, properties=TEXT)
        assert await client.send(wrong) == [puback(7, ReasonCode.PAYLOAD_FORMAT_INVALID)]
        wrong = Publish("t", b"\xed\xa0\x80", 2, packet_id=7, properties=TEXT)
        for _ in range(3):  # the identifier is free each time, also in the count of the Receive Maximum
            assert await client.send(wrong) == [pubrec(7, ReasonCode.PAYLOAD_FORMAT_INVALID)]
        right = Publish("t", "é\0".encode(), 1, packet_id=7, properties=TEXT)
        assert puback(7) in await client.send(right)
        unannounced = Publish("t", b"\xff", 1, packet_id=8)
        assert puback(8) in await client.send(unannounced)
        counters = server.core.counters
        assert (counters.dropped_payload_format, counters.dropped(), counters.publish_received) == (4, 4, 6)

    run(scenario, receive_maximum=2)


def test_a_will_whose_payload_is_not_the_announced_text_is_refused() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        answers = await client.send(connect(will=Will("t", b"\xff", properties=TEXT)))
        assert reason_of(answers) == ReasonCode.PAYLOAD_FORMAT_INVALID
        assert client.peer.ended

    run(scenario)


@v5("MQTT-3.1.4-3")
def test_who_is_replaced_is_told_so() -> None:
    async def scenario(server: Server) -> None:
        first, second = Client(server), Client(server)
        await first.send(connect())
        await second.send(connect())
        assert reason_of(first.packets()) == ReasonCode.SESSION_TAKEN_OVER

    run(scenario)


def test_the_server_says_that_it_shuts_down() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(connect())
        server.begin_turn()
        server.core.stop("the server is shutting down")
        await turn()
        assert reason_of(client.packets()) == ReasonCode.SERVER_SHUTTING_DOWN

    run(scenario)


@v5("MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_what_a_client_cannot_take_is_counted() -> None:
    async def scenario(server: Server) -> None:
        small, writer = Client(server), Client(server)
        await small.send(connect(client_id="small", maximum_packet_size=50), subscribe("#"))
        await writer.send(connect(client_id="writer"))
        await writer.send(Publish("t", bytes(100)), Publish("t", b"x"))
        assert small.packets() == [Publish("t", b"x")]
        assert server.core.counters.dropped_too_large == 1
        assert server.core.counters.dropped_output_full == 0

    run(scenario)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_shared_message_goes_to_a_member_that_can_take_it(qos: int) -> None:
    async def scenario(server: Server) -> None:
        small, large, writer = Client(server), Client(server), Client(server)
        await small.send(connect(client_id="small", maximum_packet_size=50), subscribe("$share/g/t", 2))
        await large.send(connect(client_id="large", maximum_packet_size=500), subscribe("$share/g/t", 2))
        await writer.send(connect(client_id="writer"))
        await writer.send(*(Publish("t", bytes(100), qos, packet_id=n if qos else 0) for n in range(1, 5)))
        got = [packet for packet in large.packets() if isinstance(packet, Publish)]
        assert [len(message.payload) for message in got] == [100] * 4
        assert small.packets() == []
        assert server.core.counters.dropped_too_large == 0
        await writer.send(Publish("t", bytes(1_000), qos, packet_id=9 if qos else 0))
        assert small.packets() == large.packets() == []
        assert server.core.counters.dropped_too_large == 1

    run(scenario)


@v5("MQTT-3.1.2-24")
def test_a_client_that_cannot_take_an_answer_is_told_so_or_nothing() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        assert len(await client.send(connect(maximum_packet_size=20))) == 1
        many = [SubscriptionRequest("t", 0)] * 30
        answers = await client.send(Subscribe(1, many))
        await turn()
        assert reason_of(answers + client.packets()) == ReasonCode.PACKET_TOO_LARGE
        assert client.peer.ended == "closed"
        tiny = Client(server)
        assert await tiny.send(connect(client_id="tiny", maximum_packet_size=1)) == []
        await turn()
        assert tiny.packets() == [] and tiny.peer.ended == "closed"

    run(scenario)


# -- enhanced authentication -------------------------------------------------------------------------------------------


def asked(data: bytes = b"1", method: str = "two steps") -> Connect:
    return connect(authentication_method=method, authentication_data=data)


@v5("MQTT-4.12.0-2", "MQTT-4.12.0-3", "MQTT-4.12.0-5", "MQTT-4.12.1-1")
def test_a_client_authenticates_and_does_it_again() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        assert await client.send(asked()) == [Auth(0x18, "two steps", b"2")]
        assert client.peer.is_read_from
        (connack,) = await client.send(Auth(0x18, "two steps", b"3"))
        assert isinstance(connack, Connack)
        assert (connack.reason, connack.authentication_method, connack.authentication_data) == (0, "two steps", b"4")
        assert await client.send(Pingreq(), Auth(0x19, "two steps", b"1")) == [
            Pingresp(),
            Auth(0x18, "two steps", b"2"),
        ]
        assert await client.send(Auth(0x18, "two steps", b"3")) == [Auth(0x00, "two steps", b"4")]
        assert await client.send(Pingreq()) == [Pingresp()]

    run(scenario, TwoStepsAccess())


@v5("MQTT-4.12.0-1", "MQTT-4.12.0-4")
@pytest.mark.parametrize(
    ("packets", "reason"),
    [
        ([asked(method="other")], 0x8C),
        ([asked(b"wrong")], 0x87),
        ([asked(), Auth(0x18, "two steps", b"wrong")], 0x87),
        ([asked(), Auth(0x18, "other", b"3")], 0x82),
        ([asked(), Auth(0x19, "two steps", b"3")], 0x82),
        ([asked(), Pingreq()], 0x82),
        ([asked(), asked()], 0x82),
        ([connect()], 0x86),
    ],
)
def test_a_wrong_exchange_ends_with_connack(packets: list[Packet], reason: int) -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        answers: list[Packet] = []
        for packet in packets:
            answers += await client.send(packet)
        last = answers[-1]
        assert isinstance(last, Connack) and last.reason == reason
        assert client.peer.ended == "closed"

    run(scenario, TwoStepsAccess())


@v5("MQTT-4.12.1-2")
@pytest.mark.parametrize(
    ("packets", "reason"),
    [
        ([Auth(0x19, "two steps", b"wrong")], 0x87),
        ([Auth(0x18, "two steps", b"3")], 0x82),
        ([Auth(0x19, "other", b"1")], 0x82),
        ([Auth(0x19, "two steps", b"1"), Auth(0x19, "two steps", b"1")], 0x82),
        ([Auth(0x19, "two steps", b"1"), Auth(0x18, "two steps", b"wrong")], 0x87),
    ],
)
def test_a_wrong_re_authentication_ends_with_disconnect(packets: list[Packet], reason: int) -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(asked())
        await client.send(Auth(0x18, "two steps", b"3"))
        answers: list[Packet] = []
        for packet in packets:
            answers += await client.send(packet)
        last = answers[-1]
        assert isinstance(last, Disconnect) and last.reason == reason
        assert client.peer.ended == "closed"

    run(scenario, TwoStepsAccess())


def test_a_client_may_give_up_during_its_authentication() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(asked())
        assert await client.send(Disconnect()) == []
        assert client.peer.ended == "closed"

    run(scenario, TwoStepsAccess())


def test_a_client_that_re_authenticates_too_often_is_disconnected() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(asked())
        await client.send(Auth(0x18, "two steps", b"3"))
        again = Auth(0x19, "two steps", b"1")
        assert await client.send(again) == [Auth(0x18, "two steps", b"2")]
        assert reason_of(await client.send(again)) == ReasonCode.QUOTA_EXCEEDED

    run(scenario, TwoStepsAccess(), mqtt5={"reauthentications_max": 1})


def test_a_server_that_shuts_down_names_another() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(connect())
        server.begin_turn()
        server.core.stop("the server is shutting down")
        await turn()
        (last,) = client.packets()
        assert isinstance(last, Disconnect)
        assert (last.reason, last.server_reference) == (ReasonCode.USE_ANOTHER_SERVER, "other")

    run(scenario, mqtt5={"server_reference": "other"})


def test_properties_above_the_bound_end_the_connection() -> None:
    async def scenario(server: Server) -> None:
        client = Client(server)
        await client.send(connect())
        one = bytes.fromhex("26 0000 0000")
        assert await client.send(Publish("t", b"", properties=one * 16)) == []
        assert reason_of(await client.send(Publish("t", b"", properties=one * 17))) == ReasonCode.QUOTA_EXCEEDED

    run(scenario, mqtt5={"properties_max": 16})


@v5("MQTT-3.1.2-28")
def test_response_information_is_told_to_a_client_that_asks() -> None:
    async def scenario(server: Server) -> None:
        answers = []
        for client_id, is_asked in (("a", True), ("b", False), ("x/y", True)):
            (connack,) = await Client(server).send(connect(client_id=client_id, request_response_information=is_asked))
            assert isinstance(connack, Connack)
            answers.append(connack.response_information)
        assert answers == ["responses/a", "", ""]

    run(scenario, response_information=Grant(READ, ["responses/", ""], ["c"]))
