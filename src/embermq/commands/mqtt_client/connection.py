"""One connection of an MQTT client: a blocking socket or WebSocket, MQTT 5 or 3.1.1.

Owns: the socket, waiting for answers, and keep alive. The packets are `protocol.mqtt.client_connection`'s.
Never: what is done with a message. Every error is a `ConfigError` with one sentence.
"""

import socket
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, Self, final

from embermq.client.address import ServerAddress, open_socket, open_websocket
from embermq.client.reasons import reason_said
from embermq.client.websocket import WebSocket
from embermq.errors import ConfigError
from embermq.protocol.errors import Refused
from embermq.protocol.mqtt.client_connection import Acknowledged, ClientConnection
from embermq.protocol.packets import Connack, Connect, Disconnect, Packet, Publish, Suback, SubscriptionRequest
from embermq.protocol.reasons import ReasonCode

ANSWER_TIMEOUT_S: Final = 10.0
READ_BYTES: Final = 256 * 1024
WINDOW_MAX: Final = 100
"""How many messages may be unacknowledged, at most what the server allows."""
_LOGIN_REFUSALS: Final = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)
REFUSED: Final = 0x80
"""Reason codes from here on are refusals (MQTT 5, 2.4)."""


@final
class MqttConnection:
    """A connection that the server has accepted. `password_hint`: how the user gives a password that is missing."""

    def __init__(
        self,
        address: ServerAddress,
        connect: Connect,
        password_hint: str,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._address: Final = address
        self._answer_timeout_s: Final = answer_timeout_s
        self._client: Final = ClientConnection(WINDOW_MAX)
        self._keep_alive_s = connect.keep_alive_s
        self._waiting: list[Packet] = []
        self._sent_s = time.monotonic()
        self._socket: Final[socket.socket | WebSocket] = _open(address, answer_timeout_s)
        try:
            self._handshake(connect, password_hint)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None or isinstance(error, KeyboardInterrupt):
                self._client.disconnect()
                self._socket.sendall(self._client.data_to_send())
        except OSError:
            pass  # it is closed anyway
        finally:
            self._socket.close()

    def publish(self, messages: Iterable[Publish]) -> Iterator[tuple[Publish, int]]:
        """Publish messages; yields each with its reason code when the server has acknowledged it.

        At QoS 0 there is no acknowledgement, and the reason is 0.
        """
        client = self._client
        for message in messages:
            while client.unacknowledged >= client.window:
                yield from self._acknowledged()
            try:
                client.publish(message)
            except Refused as refused:
                yield message, refused.reason
                continue
            self._send()
            if not message.qos:
                yield message, 0
        while client.unacknowledged:
            yield from self._acknowledged()

    def subscribe(self, requests: list[SubscriptionRequest]) -> Suback:
        """Subscribe; returns the answer. Messages that come before it are kept for `messages` and `receive`."""
        packet_id = self._client.subscribe(requests)
        self._send()
        kept: list[Packet] = []
        deadline_s = time.monotonic() + self._answer_timeout_s
        while True:
            packets = self._answers(deadline_s, "a subscription")
            for number, packet in enumerate(packets):
                if isinstance(packet, Suback) and packet.packet_id == packet_id:
                    self._waiting = [*kept, *packets[:number], *packets[number + 1 :]]
                    return packet
            kept += packets

    def messages(self, until_s: float | None = None) -> Iterator[Publish]:
        """The messages that come, until an instant of the monotonic clock. Each is acknowledged before the next."""
        while True:
            now_s = time.monotonic()
            if until_s is not None and now_s >= until_s:
                return
            for packet in self.receive(None if until_s is None else until_s - now_s):
                if isinstance(packet, Publish):
                    yield packet
                    self._client.acknowledge(packet)
                    self._send()

    def _acknowledged(self) -> Iterator[tuple[Publish, int]]:
        for packet in self._answers(time.monotonic() + self._answer_timeout_s, "a message"):
            if isinstance(packet, Acknowledged):
                yield packet.message, packet.reason

    def _answers(self, deadline_s: float, to: str) -> list[Packet]:
        """The next packets; ConfigError if none comes in time."""
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise ConfigError(f"{self._address} does not answer {to} within {self._answer_timeout_s:g} s")
            packets = self.receive(left_s)
            if packets:
                return packets

    def _handshake(self, connect: Connect, password_hint: str) -> None:
        self._client.connect(connect)
        self._send()
        first, *self._waiting = self._answers(time.monotonic() + self._answer_timeout_s, "as an MQTT server")
        if not isinstance(first, Connack):
            raise ConfigError(f"{self._address} does not answer as an MQTT server")
        if first.reason:
            said = reason_said(first.reason, first.reason_string)
            if connect.user_name is not None and connect.password is None and first.reason in _LOGIN_REFUSALS:
                said = f"no password was given for the user {connect.user_name}: {password_hint}"
            raise ConfigError(f"{self._address} refuses the connection: {said}")
        if first.server_keep_alive_s >= 0:
            self._keep_alive_s = first.server_keep_alive_s

    def _send(self) -> None:
        data = self._client.data_to_send()
        if not data:
            return
        self._sent_s = time.monotonic()
        try:
            self._socket.settimeout(self._answer_timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            self._explain_end()
            raise self._lost(error) from None

    def _explain_end(self) -> None:
        """If the server has said why it ends the connection, raise that."""
        try:
            for packet in self._client.receive_data(self._socket.recv(READ_BYTES)):
                self._check_end(packet)
        except OSError:
            pass

    def receive(self, timeout_s: float | None) -> list[Packet]:
        """The packets that have come; an empty list after the timeout, or after a ping."""
        if self._waiting:
            packets, self._waiting = self._waiting, []
            return packets
        ping_s = self._keep_alive_s / 2 if self._keep_alive_s else 3600.0
        left_s = self._sent_s + ping_s - time.monotonic()
        if left_s <= 0:
            self._client.ping()
            self._send()
            left_s = ping_s
        self._socket.settimeout(max(0.001, left_s if timeout_s is None else min(timeout_s, left_s)))
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            raise self._lost(error) from None
        if not data:
            raise ConfigError(f"{self._address} closed the connection")
        packets = self._client.receive_data(data)
        if self._client.failure is not None and not packets:
            raise ConfigError(f"{self._address} does not answer as an MQTT server: {self._client.failure}")
        for packet in packets:
            self._check_end(packet)
        self._send()
        return packets

    def _check_end(self, packet: Packet) -> None:
        if isinstance(packet, Disconnect):
            said = reason_said(packet.reason, packet.reason_string)
            raise ConfigError(f"{self._address} ends the connection: {said}")

    def _lost(self, error: OSError) -> ConfigError:
        return ConfigError(f"the connection to {self._address} failed: {error.strerror or error}")


def _open(address: ServerAddress, timeout_s: float) -> socket.socket | WebSocket:
    connection = open_socket(address, timeout_s)
    return open_websocket(connection, address) if address.ws_path else connection
