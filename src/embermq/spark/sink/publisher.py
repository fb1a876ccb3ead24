"""A publisher with many unacknowledged messages at a time: MQTT 5 over one socket, PUBACKs read in bulk.

Owns: the connection of one sink task, its packet identifiers and its window.
Never: Spark, subscribing, sessions, reconnecting: Spark runs a failed task again.
"""

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, final

import numpy as np

from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.dialect import MQTT_5
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX, variable_byte_integer
from embermq.protocol.mqtt.reason_codes import FAILURE, REASON_STRINGS
from embermq.protocol.mqtt.writers_v5 import acknowledgement
from embermq.protocol.packets import (
    PUBREL,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Pubrec,
)
from embermq.protocol.reasons import CONNECT_REFUSALS
from embermq.spark.errors import PipelineError
from embermq.spark.options import SinkOptions

CHUNK_BYTES: Final = 256 << 10
"""Send when this much is waiting; a window of small messages is sent earlier."""

_U16: Final = Struct(">H")
_PUBACK: Final = 0x40
_ANSWER_BYTES_MAX: Final = 1 << 20
_CONNACK_TYPE: Final = 0x20
_PUBACK_WORD: Final = _PUBACK << 8 | 2
_PUBACK_WITH_REASON_BYTES: Final = 5
_NO_PROPERTIES: Final = b"\x00"


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

    __slots__ = (
        "_address",
        "_socket",
        "_window",
        "_packet_bytes_max",
        "_outgoing",
        "_outgoing_bytes",
        "_unacknowledged",
        "_refused",
        "_next_id",
        "_in",
    )

    def __init__(self, options: SinkOptions, client_id: str, refused: Callable[[Refused], None]) -> None:
        self._address: Final = f"{options.host}:{options.port}"
        self._window = options.window
        self._packet_bytes_max = min(options.packet_bytes_max, VARIABLE_BYTE_INTEGER_MAX)
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._unacknowledged: Final[dict[int, tuple[bytes, bytes]]] = {}
        self._refused: Final = refused
        self._next_id = 1
        self._in = b""
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
        """One message a row; `headers` has the first byte of each: PUBLISH with its QoS and RETAIN.

        Writes the PUBLISH packets here, not with `protocol.mqtt.encode`: topic names are bytes already, and a `Publish`
        for each row would take longer than the rest.
        """
        outgoing = self._outgoing
        unacknowledged = self._unacknowledged
        pack = _U16.pack
        for place, (header, topic, payload) in enumerate(zip(headers, topics, payloads, strict=True)):
            body = payload or b""
            section = _NO_PROPERTIES
            if properties is not None and properties[place]:
                section = variable_byte_integer(len(properties[place])) + properties[place]
            length = 2 + len(topic) + len(section) + len(body)
            if header & 0b110:
                packet_id = self._take_id()
                unacknowledged[packet_id] = (topic, body)
                section = pack(packet_id) + section
                length += 2
            start = b"%c%b%b%b" % (header, variable_byte_integer(length), pack(len(topic)), topic)
            if len(start) + len(section) + len(body) > self._packet_bytes_max:
                raise PublishFailed(_too_long(topic, len(body)))
            packet = b"%b%b%b" % (start, section, body)
            outgoing.append(packet)
            self._outgoing_bytes += len(packet)
            if self._outgoing_bytes >= CHUNK_BYTES or len(unacknowledged) >= self._window:
                self._send()
                if len(unacknowledged) >= self._window:
                    self._receive_until(self._window // 2)

    def flush(self) -> None:
        """Wait until the server has acknowledged every message above QoS 0."""
        self._send()
        self._receive_until(0)

    def finish(self) -> None:
        """Wait until the server has received everything, then disconnect."""
        self.flush()
        # QoS 0 is not acknowledged; a PINGRESP shows that everything before the PINGREQ has arrived.
        self._outgoing.append(encode(Pingreq(), MQTT_5))
        self._send()
        while not self._receive():
            pass
        self._outgoing.append(encode(Disconnect(), MQTT_5))
        self._send()
        self.close()

    def close(self) -> None:
        """Close the connection without a DISCONNECT."""
        self._socket.close()

    def _take_id(self) -> int:
        packet_id = self._next_id
        while packet_id in self._unacknowledged:
            packet_id = packet_id % 65_535 + 1
        self._next_id = packet_id % 65_535 + 1
        return packet_id

    def _send(self) -> None:
        if not self._outgoing:
            return
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise PublishFailed(f"the server at {self._address} has stopped reading") from None
        except OSError as error:
            raise PublishFailed(f"the server at {self._address} closed the connection: {error}") from None

    def _receive_until(self, unacknowledged_max: int) -> None:
        while len(self._unacknowledged) > unacknowledged_max:
            self._receive()

    def _receive(self) -> bool:
        """Wait for data and process it; whether there was a PINGRESP in it."""
        data = self._in + self._read()
        self._in = b""
        done = _plain_acknowledgements(data)
        if done is not None:
            for packet_id in done:
                self._unacknowledged.pop(packet_id, None)
            return False
        decoder = Decoder(_ANSWER_BYTES_MAX, server=False, shortcuts=False, dialect=MQTT_5)
        at = 0
        packets: list[Packet] = []
        while at < len(data):
            end = _packet_end(data, at)
            if end > len(data) or end < 0:
                break
            packets += decoder.feed(data[at:end])
            if decoder.error is not None:
                raise PublishFailed(f"the server at {self._address} sent a bad packet: {decoder.error}")
            at = end
        self._in = data[at:]
        has_pingresp = False
        for packet in packets:
            has_pingresp |= isinstance(packet, Pingresp)
            self._take(packet)
        self._send()
        return has_pingresp

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Pubrec) and packet.reason < FAILURE:
            self._outgoing.append(acknowledgement(PUBREL, packet.packet_id, 0))
        elif isinstance(packet, (Puback, Pubrec, Pubcomp)):
            row = self._unacknowledged.pop(packet.packet_id, None)
            # A PUBCOMP without its PUBREL says only that the server has forgotten the identifier.
            if row is not None and packet.reason >= FAILURE and not isinstance(packet, Pubcomp):
                self._refused(Refused(row[0], row[1], packet.reason))
        elif isinstance(packet, Disconnect):
            why = REASON_STRINGS.get(packet.reason, f"reason {packet.reason:#04x}")
            raise PublishFailed(f"the server at {self._address} ended the connection: {why}")
        elif not isinstance(packet, Pingresp):
            raise PublishFailed(f"the server at {self._address} sent an unexpected {type(packet).__name__}")

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(65_536)
        except TimeoutError:
            waiting = len(self._unacknowledged)
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
        self._outgoing.append(encode(connect, MQTT_5))
        self._send()
        data = self._read()
        while (end := _packet_end(data, 0)) < 0 or end > len(data):
            data += self._read()
        if data[0] == _CONNACK_TYPE and data[1] == 2:  # the short form of an older version
            raise PublishFailed(f"the server at {self._address} refused the connection: it does not support MQTT 5")
        decoder = Decoder(_ANSWER_BYTES_MAX, server=False, shortcuts=False, dialect=MQTT_5)
        packets = decoder.feed(data[:end])
        if not packets or not isinstance(packets[0], Connack):
            raise PublishFailed(f"the server at {self._address} refused the connection: no CONNACK came")
        connack = packets[0]
        if connack.reason:
            why = CONNECT_REFUSALS.get(connack.reason) or REASON_STRINGS[connack.reason]
            raise PublishFailed(f"the server at {self._address} refused the connection: {why}")
        self._window = min(self._window, connack.receive_maximum)
        if connack.maximum_packet_size:
            self._packet_bytes_max = min(self._packet_bytes_max, connack.maximum_packet_size)
        self._in = data[end:]


def _plain_acknowledgements(data: bytes) -> list[int] | None:
    """The packet identifiers if these are PUBACKs that say success and nothing else: the usual case; else None.

    All of them without a reason, or all with the reason that nobody has subscribed.
    """
    if len(data) % 4 == 0:
        words = np.frombuffer(data, ">u2")
        if (words[::2] == _PUBACK_WORD).all():
            return list(words[1::2].tolist())
    if len(data) % _PUBACK_WITH_REASON_BYTES == 0:
        table = np.frombuffer(data, np.uint8).reshape(-1, _PUBACK_WITH_REASON_BYTES)
        if ((table[:, 0] == _PUBACK) & (table[:, 1] == 3) & (table[:, 4] < FAILURE)).all():
            return list((table[:, 2].astype(np.int64) << 8 | table[:, 3]).tolist())
    return None


def _packet_end(data: bytes, at: int) -> int:
    """Where the packet that begins at `at` ends; -1 if its length has not come yet (5.0, 2.1.4)."""
    length = shift = 0
    for place in range(at + 1, min(at + 5, len(data))):
        length |= (data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            return place + 1 + length
    return -1


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
