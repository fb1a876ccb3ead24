"""The network side of an MQTT client: where a server is, and the socket, TLS or WebSocket to it."""

from typing import Final

URL_EXPECTED: Final = "mqtt://host:1883, mqtts://host:8883, ws://host:9001/mqtt, wss://host:9002/mqtt or unix:///path"
