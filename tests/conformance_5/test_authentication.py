"""Enhanced authentication (4.12) and AUTH (3.15)."""

from collections.abc import Iterator

import pytest

from embermq import Broker
from embermq.broker.access import EXCHANGE_ROUNDS_MAX, Access, Exchange, ExchangeAnswer, Identity
from embermq.protocol.errors import Refused
from embermq.protocol.reasons import ReasonCode
from support import wire, wire_v5
from support.clauses import v5
from support.wire import CONNACK, DISCONNECT, PINGREQ
from support.wire_v5 import AUTH, AUTHENTICATION_DATA, METHOD, USER_PROPERTY, Answer, Pairs, WireV5, answer_of

USER_PROPERTIES: Pairs = [(USER_PROPERTY, ("key", "value"))] * 3


class Steps(Exchange):
    """The client's data say what follows: "more" another step, "large" one with much data, "in" and "other" a name."""

    def first_answer(self, data: bytes | None, nonce: bytes) -> ExchangeAnswer:
        return self.next_answer(data)

    def next_answer(self, data: bytes | None) -> ExchangeAnswer:
        if data == b"more":
            return ExchangeAnswer(b"go on")
        if data == b"large":
            return ExchangeAnswer(bytes(100))
        if data in (b"in", b"other"):
            return ExchangeAnswer(b"welcome", Identity(data.decode(), "c"))
        raise Refused("not known", ReasonCode.NOT_AUTHORIZED)


class StepsAccess(Access):
    def __init__(self) -> None:
        super().__init__(slow=False, unrestricted=True)

    def authenticate(
        self, client_id: str, user_name: str | None, password: bytes | None, certificate_name: str | None
    ) -> Identity:
        return Identity("", client_id)

    def begin_exchange(self, method: str, client_id: str, certificate_name: str | None) -> Exchange:
        if method != "STEPS":
            return super().begin_exchange(method, client_id, certificate_name)
        return Steps(method)

    def may_publish(self, identity: Identity, topic_name: str, retain: bool) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: str) -> bool:
        return True


@pytest.fixture(scope="module")
def address() -> Iterator[wire.Address]:
    with Broker.in_thread(access=StepsAccess()) as broker:
        assert broker.port
        yield broker.host, broker.port


@pytest.fixture
def client(address: wire.Address) -> Iterator[WireV5]:
    with WireV5(address) as opened:
        yield opened


@pytest.fixture
def bystander(address: wire.Address) -> Iterator[WireV5]:
    """Another client, which has named no method; it is still served after the test."""
    with WireV5(address) as opened:
        assert opened.connect("bystander").reason == 0
        yield opened
        opened.assert_silent()


def begin(client: WireV5, data: bytes, properties: Pairs = ()) -> None:
    if client.maximum_packet_size:
        properties = [(wire_v5.MAXIMUM_PACKET_SIZE, client.maximum_packet_size), *properties]
    client.send(wire_v5.connect("c", properties=[(METHOD, "STEPS"), (AUTHENTICATION_DATA, data), *properties]))


def step(client: WireV5, reason: int, data: bytes) -> None:
    client.send(wire_v5.auth(reason, "STEPS", data, USER_PROPERTIES))


def expect_auth(client: WireV5, reason: int, data: bytes) -> None:
    """AUTH has the method of CONNECT and its data, and nothing that might be left out."""
    assert answer_of(client.expect(AUTH)) == Answer([reason], [(METHOD, "STEPS"), (AUTHENTICATION_DATA, data)])


@v5("MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-3.2.0-1", "MQTT-3.15.2-1")
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_client_authenticates_in_steps(client: WireV5, bystander: WireV5, steps: int) -> None:
    begin(client, b"more" if steps else b"in")
    for number in range(steps):
        expect_auth(client, 0x18, b"go on")
        step(client, 0x18, b"in" if number == steps - 1 else b"more")
    connack = wire_v5.connack_of(client.expect(CONNACK))
    assert connack.reason == 0
    assert (connack.properties[METHOD], connack.properties[AUTHENTICATION_DATA]) == ("STEPS", b"welcome")
    client.assert_silent()


@v5("MQTT-4.12.0-4", "MQTT-3.2.2-7")
@pytest.mark.parametrize("steps", [0, 1])
def test_a_refused_authentication_ends_with_connack(client: WireV5, bystander: WireV5, steps: int) -> None:
    begin(client, b"more" if steps else b"wrong")
    if steps:
        expect_auth(client, 0x18, b"go on")
        step(client, 0x18, b"wrong")
    client.assert_refused(0x87)


@v5("MQTT-4.12.0-5", "MQTT-4.12.1-1")
def test_a_client_authenticates_again_while_messages_go_on(client: WireV5, bystander: WireV5) -> None:
    begin(client, b"in")
    client.expect(CONNACK)
    client.subscribe("a")
    step(client, 0x19, b"more")
    expect_auth(client, 0x18, b"go on")
    bystander.publish("a", b"meanwhile", qos=1)
    assert client.receive_message().payload == b"meanwhile"
    assert client.publish("a", b"own", qos=1) == 0
    assert client.receive_message().payload == b"own"
    step(client, 0x18, b"in")
    expect_auth(client, 0x00, b"welcome")
    client.assert_silent()


@v5("MQTT-4.12.1-2")
@pytest.mark.parametrize(
    ("data", "reason"),
    [([b"wrong"], 0x87), ([b"more", b"wrong"], 0x87), ([b"other"], 0x87)],
    ids=["at-once", "later", "another-user"],
)
def test_a_refused_re_authentication_ends_with_disconnect(
    client: WireV5, bystander: WireV5, data: list[bytes], reason: int
) -> None:
    begin(client, b"in")
    client.expect(CONNACK)
    for number, each in enumerate(data):
        step(client, 0x18 if number else 0x19, each)
        if each == b"more":
            expect_auth(client, 0x18, b"go on")
    client.assert_disconnected(reason)


@v5("MQTT-4.12.0-6")
def test_a_client_without_a_method_is_sent_no_auth_and_may_send_none(client: WireV5, bystander: WireV5) -> None:
    connack = client.connect("plain")
    assert METHOD not in connack.properties
    client.assert_silent()
    step(client, 0x19, b"in")
    client.assert_disconnected(0x82)


@pytest.mark.parametrize(
    "sent",
    [
        wire.packet(PINGREQ, 0),
        wire_v5.publish("a", b"x"),
        wire_v5.auth(0x19, "STEPS", b"in"),
        wire_v5.auth(0x18, "OTHER", b"in"),
    ],
    ids=["PINGREQ", "PUBLISH", "re-authenticate", "another-method"],
)
def test_only_the_next_step_may_come_before_connack(client: WireV5, bystander: WireV5, sent: bytes) -> None:
    begin(client, b"more")
    expect_auth(client, 0x18, b"go on")
    client.send(sent)
    client.assert_refused(0x82)


@v5("MQTT-3.15.2-2", "MQTT-3.15.2-3", "MQTT-3.1.2-24")
@pytest.mark.parametrize("limit", [40, 41, 60])
@pytest.mark.parametrize("is_open", [True, False], ids=["re-authentication", "before-connack"])
def test_auth_is_never_larger_than_the_client_takes(
    client: WireV5, bystander: WireV5, limit: int, is_open: bool
) -> None:
    client.maximum_packet_size = limit
    begin(client, b"in" if is_open else b"more", USER_PROPERTIES)
    if is_open:
        client.expect(CONNACK)
        step(client, 0x19, b"more")
    expect_auth(client, 0x18, b"go on")
    # What cannot be made small enough is not sent: the connection ends.
    step(client, 0x18, b"large")
    received = client.expect(DISCONNECT if is_open else CONNACK)
    reason = answer_of(received).reasons[0] if is_open else wire_v5.connack_of(received).reason
    assert reason == 0x95
    client.assert_closed()


@pytest.mark.parametrize("is_open", [True, False], ids=["re-authentication", "before-connack"])
def test_the_rounds_of_an_authentication_are_bounded(client: WireV5, bystander: WireV5, is_open: bool) -> None:
    begin(client, b"in" if is_open else b"more")
    if is_open:
        client.expect(CONNACK)
        step(client, 0x19, b"more")
    for _ in range(EXCHANGE_ROUNDS_MAX):
        expect_auth(client, 0x18, b"go on")
        step(client, 0x18, b"more")
    if is_open:
        client.assert_disconnected(0x87)
    else:
        client.assert_refused(0x87)
