"""SCRAM-SHA-256 over real sockets (MQTT 5, 4.12): the exchange, authentication again, and what is refused."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embermq import Broker
from embermq.access.file_access import FileAccess
from embermq.access.passwords import write_password
from support import wire, wire_v5
from support.clauses import v5
from support.client_paths import TIMEOUT_S, Ways
from support.scram_client import ScramClient
from support.v5_clients.client import WEBSOCKET
from support.v5_clients.mqtt_js_client import MqttJsClient, Process
from support.wire_v5 import AUTH, AUTHENTICATION_DATA, WireV5, answer_of, connack_of
from support.wire_websocket import WebSocketWireV5

METHOD = "SCRAM-SHA-256"
SUCCESS, CONTINUE, REAUTHENTICATE = 0x00, 0x18, 0x19
NOT_AUTHORIZED, BAD_METHOD = 0x87, 0x8C
PASSWORDS = {"ann": "correct horse", "bob": "battery staple"}

Dial = Callable[[], WireV5]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    directory: Path = tmp_path_factory.mktemp("scram")
    for user_name, password in PASSWORDS.items():
        write_password(directory / "passwords", user_name, password.encode())
    access = FileAccess(password_file=directory / "passwords", acl_file=None, allow_anonymous=False)
    with Broker.in_thread(access=access, port=0, ws_port=0) as broker:
        assert broker.port and broker.ws_port
        yield Ways(broker.host, broker.port, 0, broker.ws_port, 0, "", directory)


@pytest.fixture(params=["tcp", WEBSOCKET])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dial(guarded: Ways, way: str) -> Iterator[Dial]:
    with ExitStack() as stack:

        def make() -> WireV5:
            if way == WEBSOCKET:
                connection = stack.enter_context(WebSocketWireV5((guarded.host, guarded.ws)))
                assert connection.upgrade().status == 101
                return connection
            return stack.enter_context(WireV5((guarded.host, guarded.tcp)))

        yield make


def begun(client: WireV5, exchange: ScramClient, client_id: str) -> None:
    """CONNECT, the server's challenge, and the proof; CONNACK is to come."""
    client.send(
        wire_v5.connect(client_id, properties=[(wire_v5.METHOD, METHOD), (AUTHENTICATION_DATA, exchange.first)])
    )
    prove(client, exchange, client.expect(AUTH))


def prove(client: WireV5, exchange: ScramClient, received: wire.Packet) -> None:
    """Answer the server's challenge."""
    client.send(wire_v5.auth(CONTINUE, METHOD, exchange.final(data_of(received, CONTINUE))))


def data_of(received: wire.Packet, reason: int) -> bytes:
    """The Authentication Data of an AUTH with this reason."""
    answer = answer_of(received)
    properties = dict(answer.properties)
    assert (answer.reasons, properties[wire_v5.METHOD]) == ([reason], METHOD)
    data = properties[AUTHENTICATION_DATA]
    assert isinstance(data, bytes)
    return data


@v5("MQTT-4.12.0-2", "MQTT-4.12.0-3", "MQTT-4.12.0-5", "MQTT-4.12.1-1")
def test_a_client_logs_in_and_authenticates_again(dial: Dial, way: str) -> None:
    client, exchange = dial(), ScramClient("ann", PASSWORDS["ann"])
    begun(client, exchange, f"in-{way}")
    session_present, reason, given = connack_of(client.expect(wire.CONNACK))
    assert (session_present, reason, given[wire_v5.METHOD]) == (0, SUCCESS, METHOD)
    final = given[AUTHENTICATION_DATA]
    assert isinstance(final, bytes) and exchange.accepts(final)
    assert client.subscribe(("scram/+", 1)) == [1]
    again = ScramClient("ann", PASSWORDS["ann"], nonce="another-nonce")
    client.send(wire_v5.auth(REAUTHENTICATE, METHOD, again.first))
    # The connection is in use meanwhile.
    client.send(wire_v5.publish("scram/x", b"meanwhile"))
    message, challenge = sorted((client.receive() for _ in range(2)), key=lambda packet: packet.kind)
    assert wire_v5.message_of(message).payload == b"meanwhile"
    prove(client, again, challenge)
    assert again.accepts(data_of(client.expect(AUTH), SUCCESS))
    client.publish("scram/x", b"after", qos=1)
    assert [message.payload for message in client.take_messages()] == [b"after"]


@v5("MQTT-4.12.0-4")
@pytest.mark.parametrize(("user_name", "password"), [("ann", "wrong"), ("nobody", "correct horse")])
def test_a_wrong_password_is_refused(dial: Dial, user_name: str, password: str) -> None:
    client = dial()
    begun(client, ScramClient(user_name, password), "wrong")
    client.assert_refused(NOT_AUTHORIZED)


@v5("MQTT-4.12.0-1")
def test_another_method_is_refused(dial: Dial) -> None:
    client = dial()
    client.send(wire_v5.connect("m", properties=[(wire_v5.METHOD, "SCRAM-SHA-1")]))
    client.assert_refused(BAD_METHOD)


@v5("MQTT-4.12.1-2")
@pytest.mark.parametrize(("user_name", "password"), [("ann", "wrong"), ("bob", "battery staple")])
def test_a_client_that_fails_to_authenticate_again_is_disconnected(
    dial: Dial, way: str, user_name: str, password: str
) -> None:
    """With a wrong password, or as another user."""
    client, exchange = dial(), ScramClient("ann", PASSWORDS["ann"])
    begun(client, exchange, f"again-{way}")
    assert connack_of(client.expect(wire.CONNACK)).reason == SUCCESS
    again = ScramClient(user_name, password)
    client.send(wire_v5.auth(REAUTHENTICATE, METHOD, again.first))
    prove(client, again, client.expect(AUTH))
    client.assert_disconnected(NOT_AUTHORIZED)


# -- MQTT.js, the one of the clients here that knows AUTH --------------------------------------------------------


def fields(data: bytes) -> dict[str, Any]:
    return {"authentication_method": METHOD, "authentication_data": data}


def challenge_answered(client: MqttJsClient, exchange: ScramClient) -> None:
    code, challenge = client.challenges.get(timeout=TIMEOUT_S)
    assert code == CONTINUE and challenge is not None
    client.answer_challenge(METHOD, exchange.final(challenge))


def test_mqtt_js_logs_in_and_authenticates_again(mqtt_js: Process, guarded: Ways, way: str, space: str) -> None:
    client, exchange = MqttJsClient(mqtt_js, guarded, way, space), ScramClient("ann", PASSWORDS["ann"])
    client.open(**fields(exchange.first))
    challenge_answered(client, exchange)
    assert exchange.accepts(client.connack().properties["authentication_data"])
    assert client.subscribe(f"{space}/#") == 1
    again = ScramClient("ann", PASSWORDS["ann"], nonce="another-nonce")
    client.authenticate_again(METHOD, again.first)
    challenge_answered(client, again)
    code, final = client.challenges.get(timeout=TIMEOUT_S)
    assert code == SUCCESS and again.accepts(final)
    client.publish(f"{space}/x", b"after")
    assert client.receive().payload == b"after"
    client.close()


def test_mqtt_js_with_a_wrong_password_is_refused(mqtt_js: Process, guarded: Ways, way: str, space: str) -> None:
    client, exchange = MqttJsClient(mqtt_js, guarded, way, space), ScramClient("ann", "wrong")
    client.open(**fields(exchange.first))
    challenge_answered(client, exchange)
    assert client.errors.get(timeout=TIMEOUT_S) == NOT_AUTHORIZED
    client.close()
