"""A publisher with many unacknowledged messages at a time: MQTT 5 over one socket.

Owns: the socket of one sink task, and when to send and to wait. The packets are `protocol.mqtt.client_connection`'s.
Never: Spark, subscribing, sessions, reconnecting: Spark runs a failed task again.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final, final

from embermq.lake.errors import PipelineError
from embermq.protocol import errors
from embermq.protocol.mqtt.client_connection import Acknowledged, ClientConnection
from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX
from embermq.protocol.mqtt.reason_codes import FAILURE, REASON_STRINGS
from embermq.protocol.packets import Connack, Connect, Disconnect, Packet, Pingresp, Publish
from embermq.protocol.reasons import CONNECT_REFUSALS, ReasonCode
from embermq.spark.options import SinkOptions

CHUNK_BYTES: Final = 256 << 10
"""Send when this much is waiting; a window of small messages is sent earlier."""
_ANSWER_BYTES_MAX: Final = 1 << 20
_READ_BYTES: Final = 65_536


class PublishFailed(PipelineError):
    """The server did not acknowledge all that was published; what it acknowledged is durable there."""


@final
class Refused:
    """A row that the server has refused."""

    __slots__ = ("topic", "payload", "reason")

    def __init__(self, topic: bytes, payload: bytes, reason: int) -> None:
        self.topic: Final = topic
        self.payload: Final = payload
        self.reason: Final = reason

    def why(self) -> str:
        """The reason in words."""
        return REASON_STRINGS.get(self.reason, f"reason {self.reason:#04x}")


@final
class Publisher:
    """Publishes rows in their order. `publish` returns once they are sent; `finish` once all are acknowledged.

    `refused` is called with each row at QoS 1 or 2 that the server refuses.
    """

    def __init__(self, options: SinkOptions, client_id: str, refused: Callable[[Refused], None]) -> None:
        self._address: Final = f"{options.host}:{options.port}"
        sent_bytes_max = min(options.packet_bytes_max, VARIABLE_BYTE_INTEGER_MAX)
        self._client: Final = ClientConnection(options.window, sent_bytes_max, _ANSWER_BYTES_MAX)
        self._refused: Final = refused
        self._socket: Final = _connect(options, self._address)
        try:
            self._handshake(options, client_id)
        except BaseException:
            self._socket.close()
            raise

    def publish(
        self,
        headers: Sequence[int],
        topics: Sequence[bytes],
        payloads: Sequence[bytes | None],
        properties: Sequence[bytes] | None = None,
    ) -> None:
        """One message a row; `headers` has the first byte of each: PUBLISH with its QoS and RETAIN."""
        client = self._client
        for place, (header, topic, payload) in enumerate(zip(headers, topics, payloads, strict=True)):
            body = payload or b""
            section = properties[place] if properties is not None else b""
            try:
                client.publish(Publish(topic.decode(), body, header >> 1 & 3, header & 1 == 1, properties=section))
            except errors.Refused:
                raise PublishFailed(_too_long(topic, len(body))) from None
            is_full = client.unacknowledged >= client.window
            if is_full or client.pending_bytes >= CHUNK_BYTES:
                self._send()
            if is_full:
                self._receive_until(client.window // 2)

    def flush(self) -> None:
        """Wait until the server has acknowledged every message above QoS 0."""
        self._send()
        self._receive_until(0)

    def finish(self) -> None:
        """Wait until the server has received everything, then disconnect."""
        self.flush()
        # QoS 0 is not acknowledged; a PINGRESP shows that everything before the PINGREQ has arrived.
        self._client.ping()
        self._send()
        while not self._receive():
            pass
        self._client.disconnect()
        self._send()
        self.close()

    def close(self) -> None:
        """Close the connection without a DISCONNECT."""
        self._socket.close()

    def _send(self) -> None:
        data = self._client.data_to_send()
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise PublishFailed(f"the server at {self._address} has stopped reading") from None
        except OSError as error:
            raise PublishFailed(f"the server at {self._address} closed the connection: {error}") from None

    def _receive_until(self, unacknowledged_max: int) -> None:
        while self._client.unacknowledged > unacknowledged_max:
            self._receive()

    def _receive(self) -> bool:
        """Wait for data and process it; whether there was a PINGRESP in it."""
        packets = self._client.receive_data(self._read())
        for packet in packets:
            self._take(packet)
        if self._client.failure is not None:
            raise PublishFailed(f"the server at {self._address} sent a bad packet: {self._client.failure}")
        self._send()
        return any(isinstance(packet, Pingresp) for packet in packets)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Acknowledged):
            if packet.reason >= FAILURE:
                message = packet.message
                self._refused(Refused(message.topic_name.encode(), message.payload, packet.reason))
        elif isinstance(packet, Disconnect):
            why = REASON_STRINGS.get(packet.reason, f"reason {packet.reason:#04x}")
            raise PublishFailed(f"the server at {self._address} ended the connection: {why}")
        elif not isinstance(packet, Pingresp):
            raise PublishFailed(f"the server at {self._address} sent an unexpected {type(packet).__name__}")

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            waiting = self._client.unacknowledged
            raise PublishFailed(f"the server at {self._address} leaves {waiting} messages unacknowledged") from None
        except OSError as error:
            raise PublishFailed(f"the connection to {self._address} broke: {error}") from None
        if not data:
            raise PublishFailed(f"the server at {self._address} closed the connection")
        return data

    def _handshake(self, options: SinkOptions, client_id: str) -> None:
        password = options.password.encode() if options.password is not None else None
        # No keep alive: there is no bound on the time between two batches of rows.
        connect = Connect(client_id, user_name=options.username, password=password, protocol_level=MQTT_5.level)
        self._client.connect(connect)
        self._send()
        packets: list[Packet] = []
        while not packets and self._client.failure is None:
            packets = self._client.receive_data(self._read())
        connack = packets[0] if packets else None
        if not isinstance(connack, Connack):
            raise PublishFailed(f"the server at {self._address} refused the connection: no CONNACK came")
        if connack.reason:
            why = CONNECT_REFUSALS.get(connack.reason) or REASON_STRINGS[connack.reason]
            if connack.reason == ReasonCode.UNSUPPORTED_PROTOCOL_VERSION:
                why = f"it does not support {MQTT_5.name}"
            raise PublishFailed(f"the server at {self._address} refused the connection: {why}")


def _too_long(topic: bytes, payload_bytes: int) -> str:
    return (
        f"the row of topic {topic.decode()!r:.200} has a payload of {payload_bytes} bytes, more than the server takes: "
        "if its limits.packet_bytes_max is larger, set the option packetBytesMax to it"
    )


def fail(refused: Refused) -> None:
    """What follows from a refused row by default: the write fails."""
    raise PublishFailed(f"the server refused the row of topic {refused.topic.decode()!r:.200}: {refused.why()}")


def connect_with_retry(
    options: SinkOptions, client_id: str, refused: Callable[[Refused], None] = fail, attempts: int = 3
) -> Publisher:
    """A publisher; a refused connection is tried again a few times, since the server may be starting."""
    for attempt in range(1, attempts):
        try:
            return Publisher(options, client_id, refused)
        except ConnectionRefusedError:
            time.sleep(0.5 * attempt)
    try:
        return Publisher(options, client_id, refused)
    except ConnectionRefusedError:
        raise PublishFailed(f"nothing listens at {options.host}:{options.port}") from None


def _connect(options: SinkOptions, address: str) -> socket.socket:
    try:
        connection = socket.create_connection((options.host, options.port), timeout=options.timeout_s or None)
    except ConnectionRefusedError:
        raise
    except OSError as error:
        raise PublishFailed(f"cannot connect to {address}: {error}") from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not options.tls:
        return connection
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            context.load_cert_chain(options.cert_file, options.key_file)
        return context.wrap_socket(connection, server_hostname=options.host)
    except OSError as error:
        connection.close()
        raise PublishFailed(f"no TLS with {address}: {error}") from None
