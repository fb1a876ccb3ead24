"""The retained messages of another MQTT broker, to import them.

Owns: one connection as an MQTT 3.1.1 client, and the decision that all retained messages have come.
MQTT does not mark the last retained message. They follow the SUBACK in one stream, so they are complete when none has
come for the quiet time; live messages do not restart that time. The subscription asks for QoS 0: brokers bound what
they queue at QoS 1 and 2, and some drop the rest silently.
"""

import os
import secrets
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final
from urllib.parse import unquote, urlsplit

from embermq.errors import ConfigError
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX
from embermq.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    SubscriptionRequest,
)
from embermq.protocol.reasons import CONNECT_REFUSALS, ReasonCode

PASSWORD_VARIABLE: Final = "EMBERMQ_IMPORT_PASSWORD"
CONNECT_TIMEOUT_S: Final = 10.0
KEEP_ALIVE_S: Final = 60
PING_S: Final = 20.0
TOTAL_MAX_S: Final = 3600.0
"""The longest import. A broker that sends retained messages for longer is sending something else."""
READ_BYTES: Final = 256 * 1024

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_COUNT_TOPIC: Final = "$SYS/broker/retained messages/count"


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a broker, with user name and password. `str` leaves the last two out."""

    host: str
    port: int
    tls: bool
    user_name: str | None
    password: bytes | None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


def broker_address(url: str) -> BrokerAddress:
    """The address that `mqtt://[user[:password]@]host[:port]` or `mqtts://...` names.

    A password belongs into the environment: every user of the machine can read a command line.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in _PORTS or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError("--from: expected mqtt://host:1883 or mqtts://host:8883, with user@ before the host")
    password = unquote(parts.password) if parts.password is not None else os.environ.get(PASSWORD_VARIABLE)
    user_name = unquote(parts.username) if parts.username else None
    if password is not None and user_name is None:
        password = None  # MQTT-3.1.2-22: no password without a user name
    return BrokerAddress(
        host,
        port if port is not None else _PORTS[parts.scheme],
        parts.scheme == "mqtts",
        user_name,
        password.encode("utf-8", "surrogateescape") if password is not None else None,
    )


@final
class RetainedSource:
    """A connection to a broker, for one subscription after another."""

    __slots__ = ("_address", "_connection", "_decoder", "_packet_id", "_packets", "_quiet_s", "_sent_s")

    def __init__(self, address: BrokerAddress, quiet_s: float, ca: Path | None = None) -> None:
        self._address: Final = address
        self._quiet_s: Final = quiet_s
        self._decoder: Final = Decoder(VARIABLE_BYTE_INTEGER_MAX, server=False)
        self._packets: list[Packet] = []
        self._packet_id = 0
        self._sent_s = 0.0
        self._connection: Final = _connect(address, ca)
        try:
            self._handshake()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._send(Disconnect())
        self._connection.close()

    def messages(self, topic_filter: str) -> Iterator[Publish]:
        """The retained messages that a filter matches, as they come."""
        self._packet_id += 1
        self._send(Subscribe(self._packet_id, [SubscriptionRequest(topic_filter, 0)]))
        deadline_s = time.monotonic() + TOTAL_MAX_S
        quiet_s = 0.0  # time spent waiting here; the caller's time does not count
        accepted = False
        while quiet_s < (self._quiet_s if accepted else CONNECT_TIMEOUT_S):
            since_s = time.monotonic()
            if since_s > deadline_s:
                raise ConfigError(f"{self._address} has sent retained messages for {TOTAL_MAX_S:.0f} s: stopped")
            retained: list[Publish] = []
            for packet in self._receive(self._quiet_s):
                if isinstance(packet, Suback) and packet.packet_id == self._packet_id:
                    if packet.reasons[0] > 2:
                        raise ConfigError(f"{self._address} refuses a subscription to {topic_filter}")
                    accepted, quiet_s, since_s = True, 0.0, time.monotonic()
                elif isinstance(packet, Publish) and packet.retain and packet.payload:
                    retained.append(packet)
            quiet_s = 0.0 if retained else quiet_s + time.monotonic() - since_s
            yield from retained
        if not accepted:
            raise ConfigError(f"{self._address} does not answer a subscription to {topic_filter}")

    def reported_count(self) -> int | None:
        """The broker's own count of its retained messages, without those of `$SYS`; None if it publishes none.

        The count may be some seconds old.
        """
        count: int | None = None
        own = 0
        try:
            for message in self.messages("$SYS/#"):
                own += 1
                if message.topic_name == _COUNT_TOPIC and message.payload.isdigit():
                    count = int(message.payload)
        except ConfigError:  # the broker may refuse a subscription to $SYS
            return None
        return None if count is None else max(0, count - own)

    def _handshake(self) -> None:
        address = self._address
        client_id = f"ember-import-{secrets.token_hex(4)}"
        self._send(Connect(client_id, True, KEEP_ALIVE_S, None, address.user_name, address.password))
        deadline_s = time.monotonic() + CONNECT_TIMEOUT_S
        while not self._packets:
            if time.monotonic() > deadline_s:
                raise ConfigError(f"{address} does not answer as an MQTT broker")
            self._packets = self._receive(CONNECT_TIMEOUT_S)
        connack = self._packets.pop(0)
        if not isinstance(connack, Connack):
            raise ConfigError(f"{address} does not answer as an MQTT broker")
        if connack.reason != ReasonCode.SUCCESS:
            why = CONNECT_REFUSALS.get(connack.reason, "no reason given")
            raise ConfigError(f"{address} refuses the connection: {why}")

    def _send(self, packet: Packet) -> None:
        self._sent_s = time.monotonic()
        try:
            self._connection.settimeout(CONNECT_TIMEOUT_S)
            self._connection.sendall(encode(packet))
        except OSError as error:
            raise self._lost(error) from None

    def _receive(self, timeout_s: float) -> list[Packet]:
        """The packets that have come; an empty list after the timeout."""
        if self._packets:
            packets, self._packets = self._packets, []
            return packets
        if time.monotonic() - self._sent_s > PING_S:
            self._send(Pingreq())
        self._connection.settimeout(max(0.01, min(timeout_s, PING_S)))
        try:
            data = self._connection.recv(READ_BYTES)
        except TimeoutError:
            return []
        except OSError as error:
            raise self._lost(error) from None
        if not data:
            raise ConfigError(f"{self._address} closed the connection")
        packets = self._decoder.feed(data)
        if self._decoder.error is not None and not packets:
            raise ConfigError(f"{self._address} does not answer as an MQTT broker: {self._decoder.error}")
        return packets

    def _lost(self, error: OSError) -> ConfigError:
        return ConfigError(f"the connection to {self._address} failed: {error.strerror or error}")


def _connect(address: BrokerAddress, ca: Path | None) -> socket.socket:
    try:
        connection = socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S)
    except OSError as error:
        raise ConfigError(f"cannot connect to {address}: {error.strerror or error}") from None
    if not address.tls:
        return connection
    try:
        context = ssl.create_default_context(cafile=ca)
        return context.wrap_socket(connection, server_hostname=address.host)
    except FileNotFoundError:
        connection.close()
        raise ConfigError(f"--ca {ca}: there is no such file") from None
    except (OSError, ssl.SSLError) as error:
        connection.close()
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error.strerror or error
        raise ConfigError(f"no TLS connection to {address}: {reason}") from None
