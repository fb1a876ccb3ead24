"""A publisher with many unacknowledged messages at a time: MQTT 3.1.1 over one socket, PUBACKs read in bulk.

Owns: the connection of one sink task, its packet identifiers and its window.
Never: Spark, subscribing, sessions, reconnecting: Spark runs a failed task again.
"""

import socket
import ssl
import time
from collections.abc import Sequence
from struct import Struct
from typing import Final, final

import numpy as np

from embermq.protocol.mqtt.encode import encode
from embermq.protocol.mqtt.fields import VARIABLE_BYTE_INTEGER_MAX, variable_byte_integer
from embermq.protocol.mqtt.readers import REASON_OF_RETURN_CODE
from embermq.protocol.mqtt.writers import acknowledgement
from embermq.protocol.packets import PUBREL, Connect, Disconnect, Pingreq
from embermq.protocol.reasons import CONNECT_REFUSALS
from embermq.spark.errors import PipelineError
from embermq.spark.options import SinkOptions

CHUNK_BYTES: Final = 256 << 10
"""Send when this much is waiting; a window of small messages is sent earlier."""

_U16: Final = Struct(">H")
_CONNACK, _PUBACK, _PUBREC, _PUBCOMP, _PINGRESP = 0x20, 0x40, 0x50, 0x70, 0xD0  # first bytes of packets
_PUBACK_WORD: Final = _PUBACK << 8 | 2


class PublishFailed(PipelineError):
    """The server did not acknowledge all that was published; what it acknowledged is durable there."""


@final
class Publisher:
    """Publishes rows in their order. `publish` returns once they are sent; `finish` once all are acknowledged."""

    __slots__ = (
        "_address",
        "_socket",
        "_window",
        "_length_max",
        "_outgoing",
        "_outgoing_bytes",
        "_unacknowledged",
        "_next_id",
        "_in",
    )

    def __init__(self, options: SinkOptions, client_id: str) -> None:
        self._address: Final = f"{options.host}:{options.port}"
        self._window: Final = options.window
        # Without the packet identifier. For MQTT 3.1.1 the server's limit is on the remaining length.
        self._length_max: Final = min(options.packet_bytes_max, VARIABLE_BYTE_INTEGER_MAX) - 2
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._unacknowledged: Final[set[int]] = set()
        self._next_id = 1
        self._in = b""
        self._socket: Final = _connect(options, self._address)
        try:
            self._handshake(options, client_id)
        except BaseException:
            self._socket.close()
            raise

    def publish(self, headers: Sequence[int], topics: Sequence[bytes], payloads: Sequence[bytes | None]) -> None:
        """One message a row; `headers` has the first byte of each: PUBLISH with its QoS and RETAIN.

        Writes the PUBLISH packets here, not with `protocol.mqtt.encode`: topic names are bytes already, and a `Publish`
        for each row would take longer than the rest.
        """
        outgoing = self._outgoing
        unacknowledged = self._unacknowledged
        pack = _U16.pack
        length_max = self._length_max
        for header, topic, payload in zip(headers, topics, payloads, strict=True):
            body = payload or b""
            length = 2 + len(topic) + len(body)
            if length > length_max and (header & 0b110 or length > length_max + 2):
                raise PublishFailed(_too_long(topic, len(body)))
            if header & 0b110:
                packet_id = self._take_id()
                unacknowledged.add(packet_id)
                head = variable_byte_integer(length + 2)
                packet = b"%c%b%b%b%b%b" % (header, head, pack(len(topic)), topic, pack(packet_id), body)
            else:
                packet = b"%c%b%b%b%b" % (header, variable_byte_integer(length), pack(len(topic)), topic, body)
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
        self._outgoing.append(encode(Pingreq()))
        self._send()
        while not self._receive():
            pass
        self._outgoing.append(encode(Disconnect()))
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
        if len(data) % 4 == 0:
            words = np.frombuffer(data, ">u2")
            if (words[::2] == _PUBACK_WORD).all():  # only PUBACKs: the usual case
                self._unacknowledged.difference_update(words[1::2].tolist())
                self._in = b""
                return False
        whole = len(data) & ~1
        has_pingresp = False
        at = 0
        # Every packet that a server sends here has two or four bytes.
        while at + 2 <= whole:
            kind = data[at]
            if kind == _PINGRESP:
                has_pingresp = True
                at += 2
                continue
            if at + 4 > len(data):
                break
            packet_id = data[at + 2] << 8 | data[at + 3]
            if kind in (_PUBACK, _PUBCOMP):
                self._unacknowledged.discard(packet_id)
            elif kind == _PUBREC:
                self._outgoing.append(acknowledgement(PUBREL, packet_id))
            else:
                raise PublishFailed(f"the server at {self._address} sent an unexpected packet of type {kind >> 4}")
            at += 4
        self._in = data[at:]
        self._send()
        return has_pingresp

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
        self._outgoing.append(encode(Connect(client_id, user_name=options.username, password=password)))
        self._send()
        answer = b""
        while len(answer) < 4:
            answer += self._read()
        return_code = answer[3]
        if answer[0] != _CONNACK or return_code:
            why = _refusal(return_code) if answer[0] == _CONNACK else "no CONNACK came"
            raise PublishFailed(f"the server at {self._address} refused the connection: {why}")
        self._in = answer[4:]


def _too_long(topic: bytes, payload_bytes: int) -> str:
    return (
        f"the row of topic {topic.decode()!r:.200} has a payload of {payload_bytes} bytes, more than the server takes: "
        "if its limits.packet_bytes_max is larger, set the option packetBytesMax to it"
    )


def _refusal(return_code: int) -> str:
    if return_code >= len(REASON_OF_RETURN_CODE):
        return f"return code {return_code}"
    return CONNECT_REFUSALS[REASON_OF_RETURN_CODE[return_code]]


def connect_with_retry(options: SinkOptions, client_id: str, attempts: int = 3) -> Publisher:
    """A publisher; a refused connection is tried again a few times, since the server may be starting."""
    for attempt in range(1, attempts):
        try:
            return Publisher(options, client_id)
        except ConnectionRefusedError:
            time.sleep(0.5 * attempt)
    try:
        return Publisher(options, client_id)
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
