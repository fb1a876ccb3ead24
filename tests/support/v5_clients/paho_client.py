"""paho-mqtt as a `Client`, and its properties by the standard's names."""

import queue
import socket
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from support.client_paths import TIMEOUT_S, Ways
from support.v5_clients.client import WEBSOCKET, Client, Connack, Message, Will


def to_paho(packet_type: int, **values: object) -> Properties:
    made = Properties(packet_type)  # type: ignore[no-untyped-call]  # paho types it by a comment only
    for name, value in values.items():
        setattr(made, name.title().replace("_", ""), value)
    return made


def from_paho(properties: Properties | None) -> dict[str, Any]:
    if properties is None:
        return {}
    found: dict[str, Any] = {}
    for name in properties.names:
        attribute = name.replace(" ", "")
        if hasattr(properties, attribute):
            found[name.replace(" ", "_").lower()] = getattr(properties, attribute)
    return found


def to_options(options: dict[str, int]) -> SubscribeOptions:
    return SubscribeOptions(
        qos=options.get("qos", 1),
        noLocal=bool(options.get("no_local", 0)),
        retainAsPublished=bool(options.get("retain_as_published", 0)),
        retainHandling=options.get("retain_handling", 0),
    )


def subscribe_properties(identifier: int) -> Properties | None:
    return to_paho(PacketTypes.SUBSCRIBE, subscription_identifier=identifier) if identifier else None


class PahoClient(Client):
    resolves_topic_aliases = False

    def __init__(self, ways: Ways, way: str, client_id: str) -> None:
        super().__init__(ways, way, client_id)
        self._connected: queue.Queue[tuple[bool, ReasonCode, Properties | None]] = queue.Queue()
        self._codes: queue.Queue[int] = queue.Queue()
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=paho.MQTTv5,
            transport="websockets" if way == WEBSOCKET else "tcp",
            reconnect_on_failure=False,
        )
        if way == WEBSOCKET:
            self._paho.ws_set_options("/mqtt")
        self._paho.on_connect = lambda _c, _d, flags, code, given: self._connected.put(
            (flags.session_present, code, given)
        )
        self._paho.on_disconnect = self._on_disconnect
        self._paho.on_subscribe = lambda _c, _d, _mid, codes, _given: self._codes.put(codes[0].value)
        self._paho.on_unsubscribe = lambda _c, _d, _mid, codes, _given: self._codes.put(codes[0].value)
        self._paho.on_publish = lambda _c, _d, _mid, code, _given: self._codes.put(code.value)
        self._paho.on_message = self._on_message

    def _on_message(self, _client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
        given = from_paho(message.properties)
        self.messages.put(Message(message.topic, bytes(message.payload), message.qos, message.retain, given))

    def _on_disconnect(
        self, _client: paho.Client, _data: object, flags: paho.DisconnectFlags, code: ReasonCode, _given: object
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self.server_reasons.put(code.value)

    def connect(self, clean_start: bool = True, will: Will | None = None, **properties: Any) -> Connack:
        if will is not None:
            given = to_paho(PacketTypes.WILLMESSAGE, **will.properties)
            self._paho.will_set(will.topic_name, will.payload, will.qos, properties=given)
        asked = to_paho(PacketTypes.CONNECT, **properties)
        self._paho.connect(self.host, self.port, clean_start=clean_start, properties=asked)
        self._paho.loop_start()
        session_present, code, given_back = self._connected.get(timeout=TIMEOUT_S)
        assert code.value == 0, code
        return Connack(session_present, from_paho(given_back))

    def subscribe(self, topic_filter: str, identifier: int = 0, **options: int) -> int:
        self._paho.subscribe(topic_filter, options=to_options(options), properties=subscribe_properties(identifier))
        return self._codes.get(timeout=TIMEOUT_S)

    def unsubscribe(self, topic_filter: str) -> int:
        self._paho.unsubscribe(topic_filter)
        return self._codes.get(timeout=TIMEOUT_S)

    def publish(self, topic_name: str, payload: bytes, retain: bool = False, **properties: Any) -> int:
        self._paho.publish(topic_name, payload, 1, retain, to_paho(PacketTypes.PUBLISH, **properties))
        return self._codes.get(timeout=TIMEOUT_S)

    def disconnect(self, reason: int = 0, **properties: Any) -> None:
        code = ReasonCode(PacketTypes.DISCONNECT, identifier=reason)
        self._paho.disconnect(code, to_paho(PacketTypes.DISCONNECT, **properties))
        self._paho.loop_stop()

    def vanish(self) -> None:
        connection = self._paho.socket()
        wrapped = getattr(connection, "_socket", connection)  # a WebSocket wraps its socket
        assert isinstance(wrapped, socket.socket)
        wrapped.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._paho.disconnect()
        self._paho.loop_stop()
