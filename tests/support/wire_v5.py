"""The client of `wire` for MQTT 5: packets with properties and reason codes, of its own making.

Owns: the making and reading of MQTT 5 packets in tests. Every packet of the server is checked against the tables of
`properties_v5` as it comes: its reason codes, its properties, and the Maximum Packet Size that CONNECT named.
Never: the product's codec, so that the two check one another.

Properties are pairs of identifier and value, as in `properties_v5`.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from support import wire
from support.properties_v5 import PROPERTIES, REASON_CODES, Properties, Value, senders_of
from support.wire import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    Packet,
    Stream,
    packet,
    remaining_length,
    string,
)

AUTH: Final = 15

PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA = 0x01, 0x02, 0x03, 0x08, 0x09
SUBSCRIPTION_ID, SESSION_EXPIRY, ASSIGNED_CLIENT_ID, SERVER_KEEP_ALIVE = 0x0B, 0x11, 0x12, 0x13
METHOD, AUTHENTICATION_DATA, PROBLEM_INFORMATION, WILL_DELAY, ASK_RESPONSE_INFORMATION = 0x15, 0x16, 0x17, 0x18, 0x19
RESPONSE_INFORMATION, SERVER_REFERENCE, REASON_STRING, RECEIVE_MAXIMUM, ALIAS_MAXIMUM = 0x1A, 0x1C, 0x1F, 0x21, 0x22
ALIAS, USER_PROPERTY, MAXIMUM_PACKET_SIZE = 0x23, 0x26, 0x27

_BYTES: Final = (0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A)
_TWO_BYTES: Final = (0x13, 0x21, 0x22, 0x23)
_FOUR_BYTES: Final = (0x02, 0x11, 0x18, 0x27)
_NAMES: Final = {
    CONNACK: "CONNACK",
    PUBLISH: "PUBLISH",
    PUBACK: "PUBACK",
    PUBREC: "PUBREC",
    PUBREL: "PUBREL",
    PUBCOMP: "PUBCOMP",
    SUBACK: "SUBACK",
    UNSUBACK: "UNSUBACK",
    DISCONNECT: "DISCONNECT",
    AUTH: "AUTH",
}

Pairs = Sequence[tuple[int, Value]]


class Connack(NamedTuple):
    session_present: int
    reason: int
    properties: dict[int, Value]


class Message(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = []

    def valued(self, identifier: int) -> list[Value]:
        """The values of a property, in their order."""
        return [value for each, value in self.properties if each == identifier]


class Answer(NamedTuple):
    """A packet that has reason codes: PUBACK and its like, SUBACK, UNSUBACK, DISCONNECT, AUTH."""

    reasons: list[int]
    properties: Properties


class Will(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Pairs = ()


# -- making ----------------------------------------------------------------------------------------------------------


def section(properties: Pairs) -> bytes:
    """A property section with its length."""
    body = b"".join(bytes([identifier]) + _value(identifier, value) for identifier, value in properties)
    return remaining_length(len(body)) + body


def _value(identifier: int, value: Value) -> bytes:
    if isinstance(value, tuple):
        return string(value[0]) + string(value[1])
    if isinstance(value, int):
        if identifier == SUBSCRIPTION_ID:
            return remaining_length(value)
        return value.to_bytes(1 if identifier in _BYTES else 2 if identifier in _TWO_BYTES else 4)
    return string(value)


def connect(
    client_id: str | bytes,
    *,
    clean: bool = True,
    keep_alive: int = 60,
    expiry: int | None = None,
    will: Will | None = None,
    user_name: str | bytes | None = None,
    password: bytes | None = None,
    properties: Pairs = (),
    name: str | bytes = "MQTT",
    level: int = 5,
    flags: int | None = None,
) -> bytes:
    """A CONNECT; `flags` overrides the connect flags that the other arguments ask for."""
    asked = 0x02 if clean else 0
    payload = string(client_id)
    if will is not None:
        asked |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += section(will.properties) + string(will.topic_name) + string(will.payload)
    if user_name is not None:
        asked |= 0x80
        payload += string(user_name)
    if password is not None:
        asked |= 0x40
        payload += string(password)
    if expiry is not None:
        properties = [(SESSION_EXPIRY, expiry), *properties]
    head = string(name) + bytes([level, asked if flags is None else flags]) + keep_alive.to_bytes(2)
    return packet(wire.CONNECT, 0, head + section(properties) + payload)


def publish(
    topic_name: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: Pairs = (),
) -> bytes:
    flags = (8 if dup else 0) | qos << 1 | int(retain)
    head = string(topic_name) + (packet_id.to_bytes(2) if qos else b"")
    return packet(PUBLISH, flags, head + section(properties) + payload)


def ack(kind: int, packet_id: int, reason: int = 0, properties: Pairs = ()) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, with reason and properties written out."""
    return packet(kind, 2 if kind == PUBREL else 0, packet_id.to_bytes(2) + bytes([reason]) + section(properties))


def options(qos: int, *, no_local: bool = False, as_published: bool = False, handling: int = 0) -> int:
    """The options byte of a subscription."""
    return qos | no_local << 2 | as_published << 3 | handling << 4


def subscribe(packet_id: int, *filters: tuple[str | bytes, int], properties: Pairs = ()) -> bytes:
    """A SUBSCRIBE of filters with their options bytes."""
    requests = b"".join(string(topic_filter) + bytes([option]) for topic_filter, option in filters)
    return packet(SUBSCRIBE, 2, packet_id.to_bytes(2) + section(properties) + requests)


def unsubscribe(packet_id: int, *filters: str | bytes, properties: Pairs = ()) -> bytes:
    return packet(UNSUBSCRIBE, 2, packet_id.to_bytes(2) + section(properties) + b"".join(map(string, filters)))


def disconnect(reason: int = 0, properties: Pairs = ()) -> bytes:
    return packet(DISCONNECT, 0, bytes([reason]) + section(properties))


def auth(reason: int, method: str, data: bytes, properties: Pairs = ()) -> bytes:
    return packet(AUTH, 0, bytes([reason]) + section([(METHOD, method), (AUTHENTICATION_DATA, data), *properties]))


# -- reading ---------------------------------------------------------------------------------------------------------


class _Body:
    """The fields of a packet, one after the other."""

    def __init__(self, body: bytes) -> None:
        self.rest = body

    def take(self, count: int) -> bytes:
        assert len(self.rest) >= count, "a field is cut short"
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def integer(self, count: int) -> int:
        return int.from_bytes(self.take(count))

    def variable(self) -> int:
        value = shift = 0
        while True:
            digit = self.integer(1)
            value |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                assert digit or shift == 7, "more bytes than the value needs"
                return value

    def properties(self, kind: int) -> Properties:
        """A property section, if there is one: acknowledgements and DISCONNECT may end before it."""
        if not self.rest:
            assert kind in (PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT, AUTH)
            return []
        inner = _Body(self.take(self.variable()))
        found: Properties = []
        while inner.rest:
            identifier = inner.integer(1)
            assert _NAMES[kind] in PROPERTIES[identifier].places, f"property {identifier:#x} in {_NAMES[kind]}"
            assert "server" in senders_of(_NAMES[kind], identifier)
            assert identifier in (USER_PROPERTY, SUBSCRIPTION_ID) or identifier not in dict(found)
            found.append((identifier, inner.value(identifier)))
        return found

    def value(self, identifier: int) -> Value:
        if identifier == SUBSCRIPTION_ID:
            return self.variable()
        if identifier in _BYTES:
            return self.integer(1)
        if identifier in _TWO_BYTES:
            return self.integer(2)
        if identifier in _FOUR_BYTES:
            return self.integer(4)
        first = self.take(self.integer(2))
        if identifier in (CORRELATION_DATA, AUTHENTICATION_DATA):
            return first
        if identifier == USER_PROPERTY:
            return first.decode(), self.take(self.integer(2)).decode()
        return first.decode()


def message_of(received: Packet) -> Message:
    """The parts of a PUBLISH, after the checks that hold for any PUBLISH of a server."""
    assert received.kind == PUBLISH, received
    qos = received.flags >> 1 & 3
    assert qos < 3
    body = _Body(received.body)
    topic_name = body.take(body.integer(2)).decode()
    packet_id = body.integer(2) if qos else 0
    assert bool(packet_id) == bool(qos)
    dup = bool(received.flags & 8)
    assert qos or not dup
    properties = body.properties(PUBLISH)
    assert topic_name or ALIAS in dict(properties)
    return Message(topic_name, body.rest, qos, bool(received.flags & 1), dup, packet_id, properties)


def connack_of(received: Packet) -> Connack:
    """The parts of a CONNACK, after the checks that hold for any CONNACK."""
    body = _Body(received.body)
    flags, reason = body.integer(1), body.integer(1)
    assert flags in (0, 1) and reason in REASON_CODES["CONNACK"], received
    assert not (flags and reason)
    found = Connack(flags, reason, dict(body.properties(CONNACK)))
    assert not body.rest
    return found


def answer_of(received: Packet) -> Answer:
    """The parts of a packet with reason codes, after the checks that hold for any of its kind."""
    kind = received.kind
    body = _Body(received.body)
    if kind not in (DISCONNECT, AUTH):
        assert body.integer(2)
    if kind in (SUBACK, UNSUBACK):
        properties = body.properties(kind)
        reasons = list(body.take(len(body.rest)))
        assert reasons
    else:
        reasons = [body.integer(1) if body.rest else 0]
        properties = body.properties(kind)
    assert not body.rest
    assert all(reason in REASON_CODES[_NAMES[kind]] for reason in reasons), received
    return Answer(reasons, properties)


class WireV5(Stream):
    """One connection of MQTT 5."""

    def __init__(self, address: wire.Address) -> None:
        super().__init__(address)
        self.maximum_packet_size = 0  # that the client named; 0: none

    def receive(self) -> Packet:
        received = super().receive()
        if self.maximum_packet_size:
            size = 1 + len(remaining_length(len(received.body))) + len(received.body)
            assert size <= self.maximum_packet_size, received
        if received.kind == PUBLISH:
            message_of(received)
        elif received.kind == CONNACK:
            connack_of(received)
        elif received.kind in _NAMES:
            answer_of(received)
        return received

    # Expectations.

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

    def expect_reason(self, kind: int, packet_id: int | None = None) -> int:
        """The reason code of the next packet, which must be of this kind (and have this id)."""
        (reason,) = answer_of(self.expect(kind, packet_id)).reasons
        return reason

    def assert_refused(self, reason: int) -> None:
        """The server answers CONNECT with this reason, and closes the connection."""
        assert connack_of(self.expect(CONNACK)).reason == reason
        self.assert_closed()

    def assert_disconnected(self, reason: int) -> None:
        """The server sends DISCONNECT with this reason, and closes the connection."""
        received = answer_of(self.await_reply(DISCONNECT))
        assert received.reasons == [reason], received
        self.assert_closed()

    # Whole exchanges.

    def connect(self, client_id: str | bytes, **named: object) -> Connack:
        self.send(connect(client_id, **named))  # type: ignore[arg-type]  # handed through as they are
        return connack_of(self.expect(CONNACK))

    def publish(
        self,
        topic_name: str | bytes,
        payload: bytes = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        properties: Pairs = (),
    ) -> int:
        """Publish and wait until the server has taken the message (at QoS 0: until it answers a ping); the reason."""
        packet_id = self.new_packet_id() if qos else 0
        self.send(
            publish(topic_name, payload, qos=qos, retain=retain, dup=dup, packet_id=packet_id, properties=properties)
        )
        if qos == 0:
            self.ping()
            return 0
        (reason,) = answer_of(self.await_reply(PUBACK if qos == 1 else PUBREC, packet_id)).reasons
        if qos == 2 and reason < 0x80:
            self.send(wire.ack(PUBREL, packet_id))
            assert answer_of(self.await_reply(PUBCOMP, packet_id)).reasons == [0]
        return reason

    def subscribe(self, *filters: str | bytes | tuple[str | bytes, int], properties: Pairs = ()) -> list[int]:
        """Subscribe, with the options byte 2 (QoS 2) where none is given; the reason codes."""
        packet_id = self.new_packet_id()
        requests = [f if isinstance(f, tuple) else (f, 2) for f in filters]
        self.send(subscribe(packet_id, *requests, properties=properties))
        return answer_of(self.await_reply(SUBACK, packet_id)).reasons

    def unsubscribe(self, *filters: str | bytes) -> list[int]:
        packet_id = self.new_packet_id()
        self.send(unsubscribe(packet_id, *filters))
        return answer_of(self.await_reply(UNSUBACK, packet_id)).reasons

    def disconnect(self, reason: int = 0, properties: Pairs = ()) -> None:
        """DISCONNECT, and wait until the server has closed too."""
        self.send(disconnect(reason, properties))
        self.drop()


# The fixtures of tests/conformance_5: a connection on which nothing was sent yet, and an accepted one.
Dial = Callable[[], WireV5]
Join = Callable[..., WireV5]
