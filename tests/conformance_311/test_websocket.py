"""MQTT over WebSocket (6)."""

from collections.abc import Callable, Iterator

import pytest

from support import wire
from support.clauses import v311
from support.wire import Address, Connack, Join, Will
from support.wire_websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, WebSocketWire

DialWebSocket = Callable[[], WebSocketWire]


@pytest.fixture
def dial_websocket(websocket_address: Address) -> Iterator[DialWebSocket]:
    opened: list[WebSocketWire] = []

    def open_wire() -> WebSocketWire:
        opened.append(WebSocketWire(websocket_address))
        return opened[-1]

    yield open_wire
    for each in opened:
        each.close()


@pytest.fixture
def websocket(dial_websocket: DialWebSocket) -> WebSocketWire:
    """A WebSocket on which no packet was sent yet."""
    opened = dial_websocket()
    assert opened.upgrade().status == 101
    return opened


@v311("MQTT-6.0.0-4")
@pytest.mark.parametrize("offered", ["mqtt", "chat, mqtt", "mqtt, mqttv3.1", "mqttv3.1, mqtt"])
def test_the_server_selects_mqtt(dial_websocket: DialWebSocket, offered: str) -> None:
    response = dial_websocket().upgrade(subprotocols=offered)
    assert (response.status, response.headers["sec-websocket-protocol"]) == (101, "mqtt")


@pytest.mark.parametrize("offered", [None, "chat", "MQTTX"])
def test_a_client_that_does_not_offer_mqtt_is_not_served_another_protocol(
    dial_websocket: DialWebSocket, offered: str | None
) -> None:
    response = dial_websocket().upgrade(subprotocols=offered)
    assert response.status >= 400 or "sec-websocket-protocol" not in response.headers


@v311("MQTT-6.0.0-1", "MQTT-7.1.1-1")
def test_packets_of_the_server_come_in_binary_frames(websocket: WebSocketWire, space: str) -> None:
    websocket.send(wire.connect(space))
    assert websocket.receive_frame() == (BINARY, b"\x20\x02\x00\x00")


@v311("MQTT-6.0.0-1")
def test_a_text_frame_ends_the_connection_and_publishes_the_will(
    websocket: WebSocketWire, join: Join, space: str
) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    assert websocket.connect(f"{space}ws", will=Will(f"{space}/will", b"gone")) == Connack(0, 0)
    websocket.send_frame(TEXT, wire.packet(wire.PINGREQ, 0))
    assert websocket.receive_frame()[0] == CLOSE
    assert watcher.receive_message().payload == b"gone"


@v311("MQTT-6.0.0-2")
def test_packets_may_be_split_over_frames(websocket: WebSocketWire, space: str) -> None:
    stream = wire.connect(space) + wire.subscribe(1, (f"{space}/a", 0)) + wire.publish(f"{space}/a", b"in pieces")
    for byte in stream:
        websocket.send_frame(BINARY, bytes([byte]))
    websocket.expect(wire.CONNACK)
    websocket.expect(wire.SUBACK, 1)
    assert websocket.receive_message().payload == b"in pieces"


@v311("MQTT-6.0.0-2")
def test_many_packets_may_come_in_one_frame(websocket: WebSocketWire, space: str) -> None:
    packets = [wire.connect(space), wire.subscribe(1, (f"{space}/a", 0))]
    packets += [wire.publish(f"{space}/a", b"%d" % number) for number in range(100)]
    websocket.send(*packets, wire.packet(wire.PINGREQ, 0)[:1])
    websocket.send_frame(BINARY, wire.packet(wire.PINGREQ, 0)[1:])
    websocket.expect(wire.CONNACK)
    websocket.expect(wire.SUBACK, 1)
    assert [websocket.receive_message().payload for _ in range(100)] == [b"%d" % number for number in range(100)]
    websocket.expect(wire.PINGRESP)


@v311("MQTT-6.0.0-2")
def test_a_message_of_several_frames_is_one_piece_of_the_stream(websocket: WebSocketWire, space: str) -> None:
    packet = wire.connect(space)
    websocket.send_frame(BINARY, packet[:4], final=False)
    websocket.send_frame(PING, b"between")
    websocket.send_frame(CONTINUATION, packet[4:9], final=False)
    websocket.send_frame(CONTINUATION, packet[9:])
    assert websocket.receive_frame() == (PONG, b"between")
    websocket.expect(wire.CONNACK)


@v311("MQTT-7.1.1-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_between_websocket_and_tcp(websocket: WebSocketWire, join: Join, space: str, qos: int) -> None:
    assert websocket.connect(f"{space}ws") == Connack(0, 0)
    tcp = join()
    websocket.subscribe(f"{space}/to-ws")
    tcp.subscribe(f"{space}/to-tcp")
    payload = bytes(range(256)) * 300
    tcp.publish(f"{space}/to-ws", payload, qos=qos)
    assert websocket.receive_message()[:3] == (f"{space}/to-ws", payload, qos)
    websocket.publish(f"{space}/to-tcp", payload, qos=qos)
    assert tcp.receive_message()[:3] == (f"{space}/to-tcp", payload, qos)


@v311("MQTT-3.1.2-8")
@pytest.mark.parametrize("closing_frame", [True, False])
def test_a_websocket_closed_without_disconnect_publishes_the_will(
    websocket: WebSocketWire, join: Join, space: str, closing_frame: bool
) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    websocket.connect(f"{space}ws", will=Will(f"{space}/will", b"gone"))
    if closing_frame:
        websocket.send_frame(CLOSE, (1000).to_bytes(2))
    else:
        websocket.close()
    assert watcher.receive_message().payload == b"gone"


@v311("MQTT-3.14.4-3")
def test_a_disconnect_over_a_websocket_closes_it_without_the_will(
    websocket: WebSocketWire, join: Join, space: str
) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    websocket.connect(f"{space}ws", will=Will(f"{space}/will", b"must not come"))
    websocket.send(wire.packet(wire.DISCONNECT, 0))
    websocket.assert_closed()
    watcher.assert_silent()


@v311("MQTT-4.8.0-1")
def test_bad_input_over_a_websocket_ends_only_that_client(websocket: WebSocketWire, join: Join, space: str) -> None:
    bystander = join()
    websocket.connect(f"{space}ws")
    websocket.send(wire.publish("a/#", b"no"))
    websocket.assert_closed()
    bystander.assert_silent()
