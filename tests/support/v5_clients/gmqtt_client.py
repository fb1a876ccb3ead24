"""gmqtt as a `Client`. It has no WebSocket."""

import asyncio
import queue
from typing import Any

import gmqtt  # type: ignore[import-untyped]  # it has no types

from support.client_paths import TIMEOUT_S
from support.v5_clients.client import Client, Connack, Message, Will
from support.v5_clients.event_loop import EventLoop

LOOP = EventLoop()
RENAMED = {"payload_format_indicator": "payload_format_id"}
ORIGINAL = {theirs: ours for ours, theirs in RENAMED.items()}
LISTS = ("user_property", "subscription_identifier")


def to_gmqtt(properties: dict[str, Any]) -> dict[str, Any]:
    return {RENAMED.get(name, name): value for name, value in properties.items()}


def from_gmqtt(properties: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in properties.items():
        if isinstance(value, list):  # what the library adds of its own is no list
            found[ORIGINAL.get(name, name)] = value if name in LISTS else value[0]
    return found


class GmqttClient(Client):
    shows_publish_reason = False

    _gmqtt: gmqtt.Client

    def connect(self, clean_start: bool = True, will: Will | None = None, **properties: Any) -> Connack:
        last_will = None
        if will is not None:
            given = to_gmqtt(dict(will.properties))
            last_will = gmqtt.Message(will.topic_name, will.payload, will.qos, **given)
        self._codes: queue.Queue[int] = queue.Queue()
        return LOOP.run(self._connect(clean_start, last_will, to_gmqtt(properties)))

    async def _connect(self, clean_start: bool, will: gmqtt.Message | None, asked: dict[str, Any]) -> Connack:
        client = gmqtt.Client(self.client_id, clean_session=clean_start, will_message=will, **asked)
        connacks: list[Connack] = []
        client.on_connect = lambda _c, present, _code, given: connacks.append(Connack(bool(present), from_gmqtt(given)))
        client.on_message = self._on_message
        client.on_subscribe = lambda _c, _mid, codes, _given: self._codes.put(codes[0])
        client.on_unsubscribe = lambda _c, _mid, codes: self._codes.put(codes[0])
        client.on_disconnect = lambda _c, packet, _error=None: self._on_disconnect(packet)
        client.stop_reconnect()
        self._gmqtt = client
        await client.connect(self.host, self.port)
        return connacks[0]

    def _on_message(
        self, _client: object, topic_name: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        self.messages.put(Message(topic_name, bytes(payload), qos, bool(properties["retain"]), from_gmqtt(properties)))
        return 0

    def _on_disconnect(self, packet: object) -> None:
        if isinstance(packet, bytes) and packet:
            self.server_reasons.put(packet[0])

    def subscribe(self, topic_filter: str, identifier: int = 0, **options: int) -> int:
        subscription = gmqtt.Subscription(
            topic_filter,
            qos=options.get("qos", 1),
            no_local=bool(options.get("no_local", 0)),
            retain_as_published=bool(options.get("retain_as_published", 0)),
            retain_handling_options=options.get("retain_handling", 0),
            subscription_identifier=identifier or None,
        )

        async def ask() -> None:
            self._gmqtt.subscribe(subscription)

        LOOP.run(ask())
        return self._codes.get(timeout=TIMEOUT_S)

    def unsubscribe(self, topic_filter: str) -> int:
        async def ask() -> None:
            self._gmqtt.unsubscribe(topic_filter)

        LOOP.run(ask())
        return self._codes.get(timeout=TIMEOUT_S)

    def publish(self, topic_name: str, payload: bytes, retain: bool = False, **properties: Any) -> int:
        async def whole() -> None:
            self._gmqtt.publish(topic_name, payload, 1, retain, **to_gmqtt(properties))
            await self._gmqtt._persistent_storage.wait_empty()

        LOOP.run(whole())
        return 0

    def disconnect(self, reason: int = 0, **properties: Any) -> None:
        LOOP.run(self._gmqtt.disconnect(reason, **to_gmqtt(properties)))

    def vanish(self) -> None:
        async def abort() -> None:
            self._gmqtt._is_active = False  # or it comes back by itself
            self._gmqtt._connection._transport.abort()

        LOOP.run(abort())

    def close(self) -> None:
        if self._gmqtt.is_connected:
            LOOP.run(self._gmqtt.disconnect())
        LOOP.run(asyncio.sleep(0))
