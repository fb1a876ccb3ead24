"""aiomqtt as a `Client`."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from support.client_paths import TIMEOUT_S
from support.v5_clients.client import WEBSOCKET, Client, Connack, Message, Will
from support.v5_clients.event_loop import EventLoop
from support.v5_clients.paho_client import from_paho, subscribe_properties, to_options, to_paho

LOOP = EventLoop()


class AiomqttClient(Client):
    shows_publish_reason = False
    resolves_topic_aliases = False

    _client: aiomqtt.Client
    _reader: asyncio.Task[None]

    def connect(self, clean_start: bool = True, will: Will | None = None, **properties: Any) -> Connack:
        return LOOP.run(self._connect(clean_start, will, to_paho(PacketTypes.CONNECT, **properties)))

    async def _connect(self, clean_start: bool, will: Will | None, asked: Properties) -> Connack:
        last_will = None
        if will is not None:
            given = to_paho(PacketTypes.WILLMESSAGE, **will.properties)
            last_will = aiomqtt.Will(will.topic_name, will.payload, will.qos, properties=given)
        self._client = aiomqtt.Client(
            self.host,
            self.port,
            identifier=self.client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            timeout=TIMEOUT_S,
            clean_start=clean_start,
            will=last_will,
            properties=asked,
            transport="websockets" if self.way == WEBSOCKET else "tcp",
            websocket_path="/mqtt" if self.way == WEBSOCKET else None,
        )
        # aiomqtt hands CONNACK to nobody: look at it before aiomqtt does.
        connacks: list[Connack] = []
        on_connect = self._client._client.on_connect
        assert on_connect is not None

        def seen(client: Any, data: Any, flags: Any, code: Any, given: Any) -> None:
            connacks.append(Connack(flags.session_present, from_paho(given)))
            on_connect(client, data, flags, code, given)  # type: ignore[call-arg]  # typed for the older callbacks

        self._client._client.on_connect = seen
        await self._client.__aenter__()
        self._reader = asyncio.ensure_future(self._read())
        return connacks[0]

    async def _read(self) -> None:
        try:
            async for message in self._client.messages:
                given = from_paho(message.properties)
                self.messages.put(
                    Message(str(message.topic), bytes(message.payload), message.qos, message.retain, given)
                )
        except aiomqtt.MqttError as error:
            cause = error.__cause__
            if isinstance(cause, aiomqtt.MqttCodeError) and isinstance(cause.rc, ReasonCode):
                self.server_reasons.put(cause.rc.value)

    def subscribe(self, topic_filter: str, identifier: int = 0, **options: int) -> int:
        asked = self._client.subscribe(
            topic_filter, options=to_options(options), properties=subscribe_properties(identifier)
        )
        (code,) = LOOP.run(asked)
        assert isinstance(code, ReasonCode)
        return int(code.value)

    def unsubscribe(self, topic_filter: str) -> int:
        LOOP.run(self._client.unsubscribe(topic_filter))
        return 0

    def publish(self, topic_name: str, payload: bytes, retain: bool = False, **properties: Any) -> int:
        given = to_paho(PacketTypes.PUBLISH, **properties)
        LOOP.run(self._client.publish(topic_name, payload, 1, retain, given))
        return 0

    def disconnect(self, reason: int = 0, **properties: Any) -> None:
        LOOP.run(self._disconnect(reason, to_paho(PacketTypes.DISCONNECT, **properties)))

    async def _disconnect(self, reason: int, given: Properties) -> None:
        self._client._client.disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=reason), given)
        await self._leave()

    async def _leave(self) -> None:
        with suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)
        self._reader.cancel()

    def vanish(self) -> None:
        connection = self._client._client.socket()
        wrapped = getattr(connection, "_socket", connection)  # a WebSocket wraps its socket
        assert isinstance(wrapped, socket.socket)
        wrapped.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        LOOP.run(self._leave())
