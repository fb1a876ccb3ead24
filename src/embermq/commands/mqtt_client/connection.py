"""One connection of an MQTT client: a blocking socket or WebSocket, MQTT 5 or 3.1.1.

Owns: sending and receiving packets, keep alive, and the acknowledgements of the QoS exchanges.
Never: what is done with a message. Every error is a `ConfigError` with one sentence.
"""

import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from embermq.commands.mqtt_client.options import PASSWORD_VARIABLE
from embermq.commands.mqtt_client.websocket import WebSocket
from embermq.errors import ConfigError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5, MQTT_311, Dialect
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX
from embermq.protocol.mqtt.readers_v5 import WirePublish
from embermq.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from embermq.protocol.reasons import ReasonCode
from embermq.transport.addresses import shown, unix_address

ANSWER_TIMEOUT_S: Final = 10.0
READ_BYTES: Final = 256 * 1024
WINDOW_MAX: Final = 100
"""How many messages may be unacknowledged, at most what the server allows."""
_LOGIN_REFUSALS: Final = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)
REFUSED: Final = 0x80
"""Reason codes from here on are refusals (MQTT 5, 2.4)."""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is: a host and a port, with TLS or not, or a unix socket. With a `ws_path` it is a WebSocket."""

    host: str = ""
    port: int = 0
    tls: bool = False
    unix_path: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    ws_path: str = ""

    def __str__(self) -> str:
        if self.unix_path is not None:
            return str(self.unix_path)
        scheme = "ws" if self.ws_path else "mqtt"
        return f"{scheme}{'s' if self.tls else ''}://{shown(self.host, self.port)}{self.ws_path}"


def reason_text(reason: int) -> str:
    """A reason code in words."""
    known = reason in ReasonCode.__members__.values()
    return ReasonCode(reason).name.lower().replace("_", " ") if known else f"reason code {reason:#04x}"


def _with_reason_string(reason: int, reason_string: str | None) -> str:
    """What the server says, once."""
    text = reason_text(reason)
    is_new = reason_string and reason_string.lower() != text
    return f"{text} ({reason_string})" if is_new else text


@final
class MqttConnection:
    """A connection that the server has accepted."""

    __slots__ = (
        "_address",
        "_answer_timeout_s",
        "_decoder",
        "_dialect",
        "_keep_alive_s",
        "_packet_id",
        "_received_ids",
        "_sent_s",
        "_socket",
        "_waiting",
        "_window",
        "connack",
    )

    def __init__(self, address: ServerAddress, connect: Connect, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._address: Final = address
        self._answer_timeout_s: Final = answer_timeout_s
        self._dialect: Final[Dialect] = MQTT_5 if connect.protocol_level == MQTT_5.level else MQTT_311
        self._decoder: Final = Decoder(VARIABLE_BYTE_INTEGER_MAX, server=False, dialect=self._dialect)
        self._keep_alive_s = connect.keep_alive_s
        self._packet_id = 0
        self._received_ids: Final[set[int]] = set()  # of QoS 2 messages that are not yet released
        self._waiting: list[Packet] = []
        self._sent_s = time.monotonic()
        self._socket: Final = _open(address)
        try:
            self.connack: Final = self._handshake(connect)
        except BaseException:
            self._socket.close()
            raise
        if self.connack.server_keep_alive_s >= 0:
            self._keep_alive_s = self.connack.server_keep_alive_s
        self._window: Final = min(WINDOW_MAX, self.connack.receive_maximum)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None or isinstance(error, KeyboardInterrupt):
                self._socket.sendall(encode(Disconnect(), self._dialect))
        except OSError:
            pass  # it is closed anyway
        finally:
            self._socket.close()

    def publish(self, messages: Iterable[Publish]) -> Iterator[tuple[Publish, int]]:
        """Publish messages; yields each with its reason code when the server has acknowledged it.

        At QoS 0 there is no acknowledgement, and the reason is 0.
        """
        pending: dict[int, Publish] = {}
        for message in messages:
            if not message.qos:
                self._send(message)
                yield message, 0
                continue
            while len(pending) >= self._window:
                yield from self._acknowledged(pending)
            packet_id = self._next_id()
            numbered = Publish(
                message.topic_name, message.payload, message.qos, message.retain, False, packet_id, message.properties
            )
            pending[packet_id] = numbered
            self._send(numbered)
        while pending:
            yield from self._acknowledged(pending)

    def subscribe(self, requests: list[SubscriptionRequest]) -> Suback:
        """Subscribe; returns the answer. Messages that come before it are kept for `messages`."""
        packet_id = self._next_id()
        self._send(Subscribe(packet_id, requests))
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
            for packet in self._receive(None if until_s is None else until_s - now_s):
                message = packet.message if isinstance(packet, WirePublish) else packet
                if isinstance(message, Publish):
                    if message.qos == 2 and message.packet_id in self._received_ids:
                        self._send(Pubrec(message.packet_id))
                        continue
                    yield message
                    if message.qos == 1:
                        self._send(Puback(message.packet_id))
                    elif message.qos == 2:
                        self._received_ids.add(message.packet_id)
                        self._send(Pubrec(message.packet_id))
                elif isinstance(packet, Pubrel):
                    self._received_ids.discard(packet.packet_id)
                    self._send(Pubcomp(packet.packet_id))

    def _acknowledged(self, pending: dict[int, Publish]) -> Iterator[tuple[Publish, int]]:
        for packet in self._answers(time.monotonic() + self._answer_timeout_s, "a message"):
            if isinstance(packet, Puback | Pubcomp) and packet.packet_id in pending:
                yield pending.pop(packet.packet_id), packet.reason
            elif isinstance(packet, Pubrec) and packet.packet_id in pending:
                if packet.reason >= REFUSED:
                    yield pending.pop(packet.packet_id), packet.reason
                else:
                    self._send(Pubrel(packet.packet_id))

    def _answers(self, deadline_s: float, to: str) -> list[Packet]:
        """The next packets; ConfigError if none comes in time."""
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise ConfigError(f"{self._address} does not answer {to} within {self._answer_timeout_s:g} s")
            packets = self._receive(left_s)
            if packets:
                return packets

    def _handshake(self, connect: Connect) -> Connack:
        self._send(connect)
        first, *self._waiting = self._answers(time.monotonic() + self._answer_timeout_s, "as an MQTT server")
        if not isinstance(first, Connack):
            raise ConfigError(f"{self._address} does not answer as an MQTT server")
        if first.reason:
            said = _with_reason_string(first.reason, first.reason_string)
            if connect.user_name is not None and connect.password is None and first.reason in _LOGIN_REFUSALS:
                how = f"set {PASSWORD_VARIABLE}, or use --password-file"
                said = f"no password was given for the user {connect.user_name}: {how}"
            raise ConfigError(f"{self._address} refuses the connection: {said}")
        return first

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    def _send(self, packet: Packet) -> None:
        self._sent_s = time.monotonic()
        try:
            self._socket.settimeout(self._answer_timeout_s)
            self._socket.sendall(encode(packet, self._dialect))
        except OSError as error:
            self._explain_end()
            raise self._lost(error) from None

    def _explain_end(self) -> None:
        """If the server has said why it ends the connection, raise that."""
        try:
            for packet in self._decoder.feed(self._socket.recv(READ_BYTES)):
                self._check_end(packet)
        except OSError:
            pass

    def _receive(self, timeout_s: float | None) -> list[Packet]:
        """The packets that have come; an empty list after the timeout, or after a ping."""
        if self._waiting:
            packets, self._waiting = self._waiting, []
            return packets
        ping_s = self._keep_alive_s / 2 if self._keep_alive_s else 3600.0
        left_s = self._sent_s + ping_s - time.monotonic()
        if left_s <= 0:
            self._send(Pingreq())
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
        packets = self._decoder.feed(data)
        if self._decoder.error is not None and not packets:
            raise ConfigError(f"{self._address} does not answer as an MQTT server: {self._decoder.error}")
        for packet in packets:
            self._check_end(packet)
        return packets

    def _check_end(self, packet: Packet) -> None:
        if isinstance(packet, Disconnect):
            said = _with_reason_string(packet.reason, packet.reason_string)
            raise ConfigError(f"{self._address} ends the connection: {said}")

    def _lost(self, error: OSError) -> ConfigError:
        return ConfigError(f"the connection to {self._address} failed: {error.strerror or error}")


def _open(address: ServerAddress) -> socket.socket | WebSocket:
    try:
        if address.unix_path is not None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            with unix_address(address.unix_path) as path:
                connection.connect(path)
            return connection
        connection = socket.create_connection((address.host, address.port), ANSWER_TIMEOUT_S)
    except OSError as error:
        raise ConfigError(f"cannot connect to {address}: {error.strerror or error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if address.tls:
        connection = _with_tls(connection, address)
    return _with_websocket(connection, address) if address.ws_path else connection


def _with_websocket(connection: socket.socket, address: ServerAddress) -> WebSocket:
    try:
        return WebSocket(connection, str(address), shown(address.host, address.port), address.ws_path)
    except OSError as error:
        connection.close()
        raise ConfigError(f"no WebSocket to {address}: {error.strerror or error}") from None
    except ConfigError:
        connection.close()
        raise


def _with_tls(connection: socket.socket, address: ServerAddress) -> socket.socket:
    for option, path in (("--ca", address.ca), ("--cert", address.certificate), ("--key", address.key)):
        if path is not None and not path.is_file():
            connection.close()
            raise ConfigError(f"{option} {path}: there is no such file")
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.certificate is not None:
            context.load_cert_chain(address.certificate, address.key)
        return context.wrap_socket(connection, server_hostname=address.host)
    except (OSError, ssl.SSLError) as error:
        connection.close()
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error.strerror or error
        raise ConfigError(f"no TLS connection to {address}: {reason}") from None
