"""Clients that ask for another path than /mqtt unless they are told: Home Assistant (paho), Node-RED (MQTT.js)."""

import pytest

from clients.test_paho import Client as PahoClient
from support.client_paths import Ways
from support.v5_clients.client import WEBSOCKET
from support.v5_clients.mqtt_js_client import MqttJsClient, Process


@pytest.mark.parametrize("way", ["websocket", "websocket over tls"])
def test_paho_at_the_root_as_home_assistant(ways: Ways, space: str, way: str) -> None:
    client = PahoClient(ways, way, space, websocket_path="/").connect()
    assert client.subscribe(space, 1) == 1
    client.publish(space, b"hello", 1)
    assert client.next_message().payload == b"hello"
    client.disconnect()


def test_mqtt_js_without_a_path_as_node_red(mqtt_js: Process, ways: Ways, space: str) -> None:
    client = MqttJsClient(mqtt_js, ways, WEBSOCKET, space)
    client.websocket_path = ""
    assert not client.connect().session_present
    assert client.subscribe(space) == 1
    assert client.publish(space, b"hello") == 0
    assert client.receive().payload == b"hello"
    client.close()
