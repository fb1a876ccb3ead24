"""A client for tests that speaks MQTT 3.1.1 in a few lines of its own, down to the single byte.

Owns: one blocking socket, the making and reading of packets, and what a test may demand to come next. `wire_v5` has
the same for MQTT 5.
Never: the product's codec, so that the two check one another; a sleep, because a PINGREQ and its PINGRESP
prove that everything sent before has been handled.
"""

import contextlib
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Self

Address = tuple[str, int]

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = range(8, 15)

TIMEOUT_S = 60.0


class Packet(NamedTuple):
    kind: int
    flags: int
    body: bytes

    @property
    def packet_id(self) -> int:
        """The first two bytes of the body: where every packet but CONNECT, CONNACK and PUBLISH has it."""
        return int.from_bytes(self.body[:2])


class Connack(NamedTuple):
    session_present: int
    return_code: int


class Message(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0


class Will(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(2) + raw


def remaining_length(value: int) -> bytes:
    digits = bytearray()
    while True:
        value, digit = divmod(value, 128)
        digits.append(digit | 0x80 if value else digit)
        if not value:
            return bytes(digits)


def packet(kind: int, flags: int, body: bytes = b"") -> bytes:
    return bytes([kind << 4 | flags]) + remaining_length(len(body)) + body


def connect(
    client_id: str | bytes,
    *,
    clean: bool = True,
    keep_alive: int = 60,
    will: Will | None = None,
    user_name: str | bytes | None = None,
    password: bytes | None = None,
    name: str | bytes = "MQTT",
    level: int = 4,
    flags: int | None = None,
) -> bytes:
    """A CONNECT; `flags` overrides the connect flags that the other arguments ask for."""
    asked = 0x02 if clean else 0
    payload = string(client_id)
    if will is not None:
        asked |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += string(will.topic_name) + string(will.payload)
    if user_name is not None:
        asked |= 0x80
        payload += string(user_name)
    if password is not None:
        asked |= 0x40
        payload += string(password)
    head = string(name) + bytes([level, asked if flags is None else flags]) + keep_alive.to_bytes(2)
    return packet(CONNECT, 0, head + payload)


def publish(
    topic_name: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
) -> bytes:
    flags = (8 if dup else 0) | qos << 1 | int(retain)
    return packet(PUBLISH, flags, string(topic_name) + (packet_id.to_bytes(2) if qos else b"") + payload)


def ack(kind: int, packet_id: int) -> bytes:
    return packet(kind, 2 if kind == PUBREL else 0, packet_id.to_bytes(2))


def subscribe(packet_id: int, *filters: tuple[str | bytes, int]) -> bytes:
    return packet(SUBSCRIBE, 2, packet_id.to_bytes(2) + b"".join(string(f) + bytes([qos]) for f, qos in filters))


def unsubscribe(packet_id: int, *filters: str | bytes) -> bytes:
    return packet(UNSUBSCRIBE, 2, packet_id.to_bytes(2) + b"".join(map(string, filters)))


def message_of(received: Packet) -> Message:
    """The parts of a PUBLISH, after the checks that hold for any PUBLISH of a server."""
    assert received.kind == PUBLISH, received
    qos = received.flags >> 1 & 3
    assert qos < 3
    end = 2 + int.from_bytes(received.body[:2])
    topic_name = received.body[2:end].decode()
    packet_id = 0
    if qos:
        packet_id = int.from_bytes(received.body[end : end + 2])
        assert packet_id != 0
        end += 2
    return Message(topic_name, received.body[end:], qos, bool(received.flags & 1), bool(received.flags & 8), packet_id)


class Stream:
    """What a connection is in every version.

    Every wait ends in a failed assertion after `TIMEOUT_S`, never in a hang.
    """

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = bytearray()
        self._set_aside: deque[Packet] = deque()
        self._last_packet_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Bytes.

    def send(self, *parts: bytes | str) -> None:
        """Send bytes as they are; a str is hexadecimal."""
        self._socket.sendall(b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in parts))

    def read(self, count: int) -> bytes:
        """Exactly this many bytes, whatever packets they are."""
        while len(self._input) < count:
            self._input += self._receive_bytes()
        taken = bytes(self._input[:count])
        del self._input[:count]
        return taken

    def _receive_bytes(self) -> bytes:
        try:
            chunk = self._socket.recv(65536)
        except TimeoutError:
            raise AssertionError(f"nothing came for {TIMEOUT_S} s") from None
        if not chunk:
            raise ConnectionError("the server closed the connection")
        return chunk

    def receive(self) -> Packet:
        """The next packet, whatever it is. A closed connection is a ConnectionError."""
        first = self.read(1)[0]
        length = shift = 0
        while True:
            digit = self.read(1)[0]
            length |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                break
            assert shift < 28, "a remaining length of more than four bytes"
        received = Packet(first >> 4, first & 15, self.read(length))
        if received.kind == PUBREL:
            assert received.flags == 2, received
        elif received.kind != PUBLISH:
            assert received.flags == 0, received
        return received

    def readable_within(self, seconds: float) -> bool:
        """Whether something, the end of the connection included, comes within this time."""
        return bool(self._input) or bool(select.select([self._socket], [], [], seconds)[0])

    # Expectations.

    def expect(self, kind: int, packet_id: int | None = None) -> Packet:
        """The very next packet must be of this kind (and have this id)."""
        received = self._set_aside.popleft() if self._set_aside else self.receive()
        assert received.kind == kind, f"expected packet type {kind}, got {received}"
        if packet_id is not None:
            assert received.packet_id == packet_id, received
        return received

    def await_reply(self, kind: int, packet_id: int | None = None) -> Packet:
        """As `expect`, but PUBLISH packets that come before wait for `receive_message`."""
        while (received := self.receive()).kind == PUBLISH:
            self._set_aside.append(received)
        assert received.kind == kind, f"expected packet type {kind}, got {received}"
        if packet_id is not None:
            assert received.packet_id == packet_id, received
        return received

    def exchange(self, qos: int, packet_id: int) -> None:
        """Acknowledge a received message to the end, as its QoS asks."""
        if qos == 1:
            self.send(ack(PUBACK, packet_id))
        elif qos == 2:
            self.send(ack(PUBREC, packet_id))
            self.await_reply(PUBREL, packet_id)
            self.send(ack(PUBCOMP, packet_id))

    def ping(self) -> None:
        """The server has handled all that was sent before; messages that come before the answer are set aside."""
        self.send(packet(PINGREQ, 0))
        self.await_reply(PINGRESP)

    def take_set_aside(self) -> list[Packet]:
        """The PUBLISH packets that the server had sent before it answered a PINGREQ."""
        self.ping()
        taken = list(self._set_aside)
        self._set_aside.clear()
        return taken

    def assert_silent(self) -> None:
        """The server has sent nothing that was not taken."""
        self.ping()
        assert not self._set_aside, list(self._set_aside)

    def assert_closed(self) -> None:
        """The server closes this connection and sends nothing before."""
        with contextlib.suppress(ConnectionError):
            raise AssertionError(f"expected a closed connection, got {self.receive()}")

    def new_packet_id(self) -> int:
        self._last_packet_id = self._last_packet_id % 0xFFFF + 1
        return self._last_packet_id

    # Ends.

    def drop(self) -> None:
        """End the connection without DISCONNECT, and wait until the server has closed too."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while True:
                self.receive()
        self.close()

    def reset(self) -> None:
        """Tear the connection down with a TCP reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._socket.close()


class Wire(Stream):
    """One connection of MQTT 3.1.1."""

    def receive_message(self, *, answer: bool = True) -> Message:
        """The next packet must be a PUBLISH; answered to the end of its exchange unless `answer` is False."""
        message = message_of(self.expect(PUBLISH))
        if answer:
            self.answer(message)
        return message

    def answer(self, message: Message) -> None:
        """Acknowledge a received message as its QoS asks."""
        self.exchange(message.qos, message.packet_id)

    def take_messages(self) -> list[Message]:
        """All messages that the server had sent before it answered a PINGREQ, acknowledged."""
        messages = self.peek_messages()
        for message in messages:
            self.answer(message)
        return messages

    def peek_messages(self) -> list[Message]:
        """As `take_messages`, but not acknowledged; no more than a window of them."""
        return [message_of(received) for received in self.take_set_aside()]

    def connect(self, client_id: str | bytes, **options: object) -> Connack:
        self.send(connect(client_id, **options))  # type: ignore[arg-type]  # handed through as they are
        body = self.expect(CONNACK).body
        assert len(body) == 2
        return Connack(*body)

    def publish(
        self, topic_name: str | bytes, payload: bytes = b"", *, qos: int = 0, retain: bool = False, dup: bool = False
    ) -> None:
        """Publish and wait until the server has taken the message (at QoS 0: until it answers a ping)."""
        packet_id = self.new_packet_id() if qos else 0
        self.send(publish(topic_name, payload, qos=qos, retain=retain, dup=dup, packet_id=packet_id))
        if qos == 0:
            self.ping()
        elif qos == 1:
            self.await_reply(PUBACK, packet_id)
        else:
            self.await_reply(PUBREC, packet_id)
            self.send(ack(PUBREL, packet_id))
            self.await_reply(PUBCOMP, packet_id)

    def subscribe(self, *filters: str | bytes | tuple[str | bytes, int]) -> list[int]:
        """Subscribe, at QoS 2 where none is given; the return codes."""
        packet_id = self.new_packet_id()
        self.send(subscribe(packet_id, *(f if isinstance(f, tuple) else (f, 2) for f in filters)))
        return list(self.await_reply(SUBACK, packet_id).body[2:])

    def unsubscribe(self, *filters: str | bytes) -> None:
        packet_id = self.new_packet_id()
        self.send(unsubscribe(packet_id, *filters))
        assert self.await_reply(UNSUBACK, packet_id).body == packet_id.to_bytes(2)

    def disconnect(self) -> None:
        """DISCONNECT, and wait until the server has closed too."""
        self.send(packet(DISCONNECT, 0))
        self.drop()


# The fixtures of tests/conformance_311: a connection on which nothing was sent yet, and an accepted one.
Dial = Callable[[], Wire]
Join = Callable[..., Wire]
