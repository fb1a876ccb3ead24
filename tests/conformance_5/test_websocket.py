"""MQTT 5 over WebSocket (6)."""

from collections.abc import Iterator

import pytest

from support import wire, wire_v5
from support.clauses import v5
from support.wire import CONNACK, PINGREQ, PINGRESP, PUBLISH, SUBACK, Address
from support.wire_v5 import USER_PROPERTY, Join, Will, answer_of, connack_of, message_of
from support.wire_websocket import BINARY, CLOSE, CONTINUATION, TEXT, WebSocketWire


@pytest.fixture
def websocket(websocket_address: Address) -> Iterator[WebSocketWire]:
    """A WebSocket on which no packet was sent yet."""
    with WebSocketWire(websocket_address) as opened:
        assert opened.upgrade().status == 101
        yield opened


@v5("MQTT-6.0.0-4")
@pytest.mark.parametrize("offered", ["mqtt", "chat, mqtt", "mqtt, mqttv3.1", "mqttv3.1, mqtt"])
def test_the_server_selects_mqtt(websocket_address: Address, space: str, offered: str) -> None:
    with WebSocketWire(websocket_address) as opened:
        response = opened.upgrade(subprotocols=offered)
        assert (response.status, response.headers["sec-websocket-protocol"]) == (101, "mqtt")
        opened.send(wire_v5.connect(space))
        assert connack_of(opened.expect(CONNACK)).reason == 0


@v5("MQTT-6.0.0-1", "MQTT-4.2.0-1")
def test_packets_of_the_server_come_in_binary_frames(websocket: WebSocketWire, space: str) -> None:
    websocket.send(wire_v5.connect(space))
    opcode, data = websocket.receive_frame()
    assert opcode == BINARY and data[0] == CONNACK << 4


@v5("MQTT-6.0.0-1")
def test_a_text_frame_ends_the_connection_and_publishes_the_will(
    websocket: WebSocketWire, join: Join, space: str
) -> None:
    watcher = join()
    watcher.subscribe(f"{space}/will")
    websocket.send(wire_v5.connect(f"{space}ws", will=Will(f"{space}/will", b"gone")))
    assert connack_of(websocket.expect(CONNACK)).reason == 0
    websocket.send_frame(TEXT, wire.packet(PINGREQ, 0))
    while (frame := websocket.receive_frame())[0] == BINARY:
        assert frame[1][0] == wire.DISCONNECT << 4
    assert frame[0] == CLOSE
    assert watcher.receive_message().payload == b"gone"


@v5("MQTT-6.0.0-2")
def test_packets_may_be_split_over_frames_and_many_may_come_in_one(websocket: WebSocketWire, space: str) -> None:
    given = [(USER_PROPERTY, ("k", "v"))]
    stream = wire_v5.connect(space, properties=given) + wire_v5.subscribe(1, (f"{space}/a", 0), properties=given)
    for byte in stream:
        websocket.send_frame(BINARY, bytes([byte]))
    websocket.expect(CONNACK)
    assert answer_of(websocket.expect(SUBACK, 1)).reasons == [0]
    messages = [wire_v5.publish(f"{space}/a", b"%d" % number, properties=given) for number in range(100)]
    websocket.send(*messages, wire.packet(PINGREQ, 0)[:1])
    websocket.send_frame(BINARY, wire.packet(PINGREQ, 0)[1:])
    received = [message_of(websocket.expect(PUBLISH)) for _ in range(100)]
    assert [message.payload for message in received] == [b"%d" % number for number in range(100)]
    assert all(message.properties == given for message in received)
    websocket.expect(PINGRESP)


@v5("MQTT-6.0.0-2")
def test_a_message_of_several_frames_is_one_piece_of_the_stream(websocket: WebSocketWire, space: str) -> None:
    packet = wire_v5.connect(space)
    websocket.send_frame(BINARY, packet[:4], final=False)
    websocket.send_frame(CONTINUATION, packet[4:9], final=False)
    websocket.send_frame(CONTINUATION, packet[9:])
    websocket.expect(CONNACK)


@v5("MQTT-4.2.0-1")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_between_websocket_and_tcp_whole_and_in_order(
    websocket: WebSocketWire, join: Join, space: str, qos: int
) -> None:
    websocket.send(wire_v5.connect(f"{space}ws"), wire_v5.subscribe(1, (f"{space}/to-ws", 0)))
    websocket.expect(CONNACK)
    websocket.expect(SUBACK)
    tcp = join()
    tcp.subscribe(f"{space}/to-tcp")
    payloads = [bytes([number]) * 10_000 for number in range(20)]
    for number, payload in enumerate(payloads, 1):
        tcp.publish(f"{space}/to-ws", payload, qos=qos)
        websocket.send(wire_v5.publish(f"{space}/to-tcp", payload, qos=qos, packet_id=number))
    assert [tcp.receive_message().payload for _ in payloads] == payloads
    received: list[bytes] = []
    while len(received) < len(payloads):
        packet = websocket.receive()
        if packet.kind == PUBLISH:
            received.append(message_of(packet).payload)
    assert received == payloads


@v5("MQTT-4.13.1-1")
def test_bad_input_over_a_websocket_gets_its_reason(websocket: WebSocketWire, join: Join, space: str) -> None:
    bystander = join()
    websocket.send(wire_v5.connect(f"{space}ws"))
    websocket.expect(CONNACK)
    websocket.send(wire_v5.publish("a/#", b"no"))
    assert answer_of(websocket.expect(wire.DISCONNECT)).reasons == [0x90]
    websocket.assert_closed()
    bystander.assert_silent()
