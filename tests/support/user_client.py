"""A paho client that logs in as a user, with what happens to it as things to wait for."""

import queue
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

TIMEOUT_S = 60.0


class UserClient:
    """One connection, MQTT 5 unless another version is asked for."""

    def __init__(
        self,
        port: int | None,
        client_id: str,
        user_name: str | None = None,
        password: str | None = None,
        protocol: MQTTProtocolVersion = paho.MQTTv5,
    ) -> None:
        assert port is not None
        self._port = port
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=protocol, reconnect_on_failure=False)
        if user_name is not None:
            self.paho.username_pw_set(user_name, password)
        self._connected: queue.Queue[int] = queue.Queue()
        self._ended: queue.Queue[int] = queue.Queue()
        self._answers: queue.Queue[list[int]] = queue.Queue()
        self._published: queue.Queue[int] = queue.Queue()
        self.messages: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self.paho.on_connect = lambda _c, _d, _f, reason, _p: self._connected.put(reason.value)
        self.paho.on_disconnect = lambda _c, _d, _f, reason, _p: self._ended.put(reason.value)
        self.paho.on_subscribe = lambda _c, _d, _m, reasons, _p: self._answers.put([each.value for each in reasons])
        self.paho.on_publish = lambda _c, _d, _m, reason, _p: self._published.put(reason.value)
        self.paho.on_message = lambda _c, _d, message: self.messages.put((message.topic, bytes(message.payload)))

    def connect(self) -> int:
        """The reason code of CONNACK."""
        self.paho.connect("127.0.0.1", self._port, keepalive=60)
        self.paho.loop_start()
        return self._connected.get(timeout=TIMEOUT_S)

    def ended(self, timeout_s: float = TIMEOUT_S) -> int:
        """The reason code with which the connection ends."""
        return self._ended.get(timeout=timeout_s)

    def is_connected(self) -> bool:
        """Whether it still is, after one more message there and back."""
        self.publish("ping", b"")
        return self.paho.is_connected()

    def subscribe(self, topic_filter: str) -> int:
        """The reason code of SUBACK."""
        self.paho.subscribe(topic_filter, 1)
        return self._answers.get(timeout=TIMEOUT_S)[0]

    def publish(self, topic_name: str, payload: bytes, **more: Any) -> int:
        """The reason code of PUBACK."""
        self.paho.publish(topic_name, payload, 1, **more)
        return self._published.get(timeout=TIMEOUT_S)

    def message(self) -> tuple[str, bytes]:
        return self.messages.get(timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()
