"""A client for tests that speaks MQTT-SN 1.2, 2.0-A and 2.0-B over real UDP, in bytes of its own making.

Owns: one socket, the making and reading of packets of all three wires, and what a client has to answer by itself.
Never: the product's codec, so that the two check one another; a sleep: PINGREQ and PINGRESP prove that what was sent
before has been handled.
"""

import socket
import time
from collections import deque
from typing import NamedTuple, Self

Address = tuple[str, int]

TIMEOUT_S = 60.0

V12, A, B = "1.2", "2.0-a", "2.0-b"
PROFILES = (V12, A, B)
TWO = (A, B)

CODES = {
    V12: {
        "SEARCHGW": 0x01, "GWINFO": 0x02, "CONNECT": 0x04, "CONNACK": 0x05, "WILLTOPICREQ": 0x06, "WILLTOPIC": 0x07,
        "WILLMSGREQ": 0x08, "WILLMSG": 0x09, "REGISTER": 0x0A, "REGACK": 0x0B, "PUBLISH": 0x0C, "PUBACK": 0x0D,
        "PUBCOMP": 0x0E, "PUBREC": 0x0F, "PUBREL": 0x10, "SUBSCRIBE": 0x12, "SUBACK": 0x13, "UNSUBSCRIBE": 0x14,
        "UNSUBACK": 0x15, "PINGREQ": 0x16, "PINGRESP": 0x17, "DISCONNECT": 0x18, "WILLTOPICUPD": 0x1A,
        "WILLTOPICRESP": 0x1B, "WILLMSGUPD": 0x1C, "WILLMSGRESP": 0x1D,
    },
    A: {
        "SEARCHGW": 0x02, "GWINFO": 0x03, "AUTH": 0x04, "CONNECT": 0x05, "CONNACK": 0x06, "REGISTER": 0x0A,
        "REGACK": 0x0B, "PUBLISH": 0x0C, "PUBACK": 0x0D, "PUBCOMP": 0x0E, "PUBREC": 0x0F, "PUBREL": 0x10,
        "PUBWOS": 0x11, "SUBSCRIBE": 0x12, "SUBACK": 0x13, "UNSUBSCRIBE": 0x14, "UNSUBACK": 0x15, "PINGREQ": 0x16,
        "PINGRESP": 0x17, "DISCONNECT": 0x18,
    },
    B: {
        "CONNECT": 0x01, "CONNACK": 0x02, "PUBLISH": 0x03, "PUBACK": 0x04, "PUBREC": 0x05, "PUBREL": 0x06,
        "PUBCOMP": 0x07, "SUBSCRIBE": 0x08, "SUBACK": 0x09, "UNSUBSCRIBE": 0x0A, "UNSUBACK": 0x0B, "PINGREQ": 0x0C,
        "PINGRESP": 0x0D, "DISCONNECT": 0x0E, "AUTH": 0x0F, "REGISTER": 0x10, "REGACK": 0x11, "PUBWOS": 0x12,
        "SLEEPREQ": 0x13, "SLEEPRESP": 0x14, "SEARCHGW": 0x17, "GWINFO": 0x18,
    },
}  # fmt: skip
NAMES = {profile: {code: name for name, code in codes.items()} for profile, codes in CODES.items()}

ALIAS, PREDEFINED, SHORT, FULL = range(4)


class Seen(NamedTuple):
    """A packet that came."""

    name: str
    body: bytes


class Message(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False


class Connack(NamedTuple):
    reason: int
    session_present: bool = False
    assigned: str = ""


class Suback(NamedTuple):
    reason: int
    alias: int = 0


class Will(NamedTuple):
    topic_name: str
    payload: bytes
    qos: int = 0
    retain: bool = False


def frame(code: int, body: bytes) -> bytes:
    if len(body) + 2 <= 255:
        return bytes([len(body) + 2, code]) + body
    return b"\x01" + (len(body) + 4).to_bytes(2) + bytes([code]) + body


def packet(profile: str, name: str, body: bytes = b"") -> bytes:
    return frame(CODES[profile][name], body)


def unframe(datagram: bytes) -> tuple[int, bytes]:
    if datagram[0] == 1:
        assert int.from_bytes(datagram[1:3]) == len(datagram)
        return datagram[3], datagram[4:]
    assert datagram[0] == len(datagram), datagram.hex()
    return datagram[1], datagram[2:]


def pubwos(profile: str, topic: str | int, payload: bytes, retain: bool = False, full_name_12: bool = False) -> bytes:
    """A message without a session. A number is a predefined alias; two characters are a short name in 1.2 and A."""
    if isinstance(topic, int):
        kind, two, name = PREDEFINED, topic.to_bytes(2), b""
    elif len(topic.encode()) == 2 and profile != B:
        kind, two, name = SHORT, topic.encode(), b""
    else:
        kind, two, name = FULL, len(topic.encode()).to_bytes(2), topic.encode()
    flags = (0x10 if retain else 0) | kind
    if profile == V12:
        if full_name_12:
            return packet(V12, "PUBLISH", bytes([flags & ~3 | 0x60]) + two + b"\0\0" + name + payload)
        assert kind != FULL
        return packet(V12, "PUBLISH", bytes([flags | 0x60]) + two + b"\0\0" + payload)
    return packet(profile, "PUBWOS", bytes([flags]) + two + name + payload)


class SnClient:
    """One client. It acknowledges what it is sent, and repeats its own requests when `retry_s` is set."""

    def __init__(self, profile: str, address: Address, client_id: str = "", retry_s: float = 0.0) -> None:
        self.profile = profile
        self.client_id = client_id
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.server = address
        self.retry_s = retry_s
        self.names: dict[int, str] = {}
        self.predefined: dict[int, str] = {}
        self.aliases: dict[str, int] = {}
        self.messages: list[Message] = []
        self.datagrams = 0
        self.registered: list[str] = []
        self.acknowledging = True
        self.knows_aliases = True
        self._seen: deque[Seen] = deque()
        self._packet_id = 0
        self._half: dict[int, Message] = {}
        self._finished: deque[tuple[int, bytes]] = deque(maxlen=64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    # -- moving bytes ------------------------------------------------------------------------------------------------

    def move(self) -> None:
        """Go on from another port, as behind a NAT that forgot us."""
        self.socket.close()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendto(data, self.server)

    def send(self, name: str, body: bytes = b"") -> None:
        self.send_bytes(packet(self.profile, name, body))

    def next_id(self) -> int:
        self._packet_id = self._packet_id % 65_535 + 1
        return self._packet_id

    def _read(self, deadline: float) -> bool:
        """Read one datagram and do what a client does about it. False: none came in time."""
        self.socket.settimeout(max(0.0, deadline - time.monotonic()) or 0.000_001)
        try:
            data, _ = self.socket.recvfrom(65_535)
        except (TimeoutError, BlockingIOError):
            return False
        self.datagrams += 1
        code, body = unframe(data)
        name = NAMES[self.profile].get(code)
        assert name is not None, f"{self.profile}: an unknown packet {data.hex()}"
        seen = Seen(name, body)
        if name == "PUBLISH":
            self._publish(body)
        elif name == "REGISTER":
            self._register(body)
        elif name == "PUBREL":
            self._pubrel(body)
        else:
            self._seen.append(seen)
        return True

    def expect(self, name: str, timeout_s: float = TIMEOUT_S) -> Seen:
        """The next packet of that kind; messages that come before it are kept."""
        deadline = time.monotonic() + timeout_s
        while True:
            for seen in self._seen:
                if seen.name == name:
                    self._seen.remove(seen)
                    return seen
            if not self._read(deadline):
                raise AssertionError(f"no {name} came; instead {list(self._seen)}")

    def ask(self, name: str, body: bytes, answer: str, packet_id: int = 0) -> Seen:
        """A request and its answer ("ONE|OTHER"), repeated until it comes."""
        self.send(name, body)
        deadline = time.monotonic() + TIMEOUT_S * (4 if self.retry_s else 1)
        again = time.monotonic() + self.retry_s if self.retry_s else deadline
        while True:
            for seen in list(self._seen):
                if seen.name in answer.split("|"):
                    self._seen.remove(seen)
                    if not packet_id or self._id_of(seen) == packet_id:
                        return seen
            if not self._read(min(again, deadline)):
                if time.monotonic() >= deadline:
                    raise AssertionError(f"no {answer} came; instead {list(self._seen)}")
                if name in ("PUBLISH",) or (name == "SUBSCRIBE" and self.profile == V12):
                    body = bytes([body[0] | 0x80]) + body[1:]
                self.send(name, body)
                again = time.monotonic() + self.retry_s

    def _id_of(self, seen: Seen) -> int:
        at = 0
        if self.profile == V12:
            at = {"REGACK": 2, "PUBACK": 2, "SUBACK": 3}.get(seen.name, 0)
        elif self.profile == A:
            at = {"REGACK": 1, "SUBACK": 3}.get(seen.name, 0)
        elif seen.name in ("REGACK", "SUBACK", "SLEEPRESP"):
            at = 1
        return int.from_bytes(seen.body[at : at + 2])

    # -- what comes by itself ----------------------------------------------------------------------------------------

    def _name_of(self, kind: int, two: bytes, body: bytes, at: int) -> tuple[str, int]:
        if kind == ALIAS:
            return self.names[int.from_bytes(two)], at
        if kind == PREDEFINED:
            return self.predefined[int.from_bytes(two)], at
        if kind == SHORT:
            return two.decode(), at
        end = at + int.from_bytes(two)
        return body[at:end].decode(), end

    def _publish(self, body: bytes) -> None:
        flags = body[0]
        qos = (flags >> 5) & 3
        if self.profile == V12:
            two, packet_id, at = body[1:3], int.from_bytes(body[3:5]), 5
        elif qos:
            packet_id, two, at = int.from_bytes(body[1:3]), body[3:5], 5
        else:
            packet_id, two, at = 0, body[1:3], 3
        if flags & 3 == ALIAS and not self.knows_aliases:
            self._refuse(two, packet_id, qos)
            return
        topic_name, at = self._name_of(flags & 3, two, body, at)
        message = Message(topic_name, body[at:], qos, bool(flags & 0x10))
        if qos == 2:
            if packet_id not in self._half and (packet_id, message.payload) not in self._finished:
                self._half[packet_id] = message
                self.messages.append(message)
        else:
            self.messages.append(message)
        if not self.acknowledging:
            return
        if qos == 1:
            ack = packet_id.to_bytes(2)
            self.send("PUBACK", two + ack + b"\0" if self.profile == V12 else ack + b"\0")
        elif qos == 2:
            self._ack("PUBREC", packet_id)

    def _refuse(self, two: bytes, packet_id: int, qos: int) -> None:
        ack = packet_id.to_bytes(2)
        if self.profile == V12:
            self.send("PUBACK", two + ack + b"\x02")
        elif qos:
            self.send("PUBACK" if qos == 1 else "PUBREC", ack + b"\xf0")

    def _ack(self, name: str, packet_id: int) -> None:
        self.send(name, packet_id.to_bytes(2) + (b"\0" if self.profile == A else b""))

    def _pubrel(self, body: bytes) -> None:
        packet_id = int.from_bytes(body[:2])
        message = self._half.pop(packet_id, None)
        if message is not None:
            self._finished.append((packet_id, message.payload))
        if self.acknowledging:
            self._ack("PUBCOMP", packet_id)

    def _register(self, body: bytes) -> None:
        if self.profile == V12:
            alias, packet_id, name = body[:2], body[2:4], body[4:]
            answer = alias + packet_id + b"\0"
        elif self.profile == A:
            packet_id, alias, name = body[:2], body[2:4], body[4:]
            answer = b"\0" + packet_id + alias + b"\0"
        else:
            assert body[0] == 1, "a server's REGISTER has an alias"
            packet_id, alias, name = body[1:3], body[3:5], body[5:]
            answer = b"\0" + packet_id
        self.names[int.from_bytes(alias)] = name.decode()
        self.aliases[name.decode()] = int.from_bytes(alias)
        self.registered.append(name.decode())
        self.knows_aliases = True
        if self.acknowledging:
            self.send("REGACK", answer)

    # -- what a test asks for ----------------------------------------------------------------------------------------

    def connect_bytes(
        self,
        *,
        clean: bool = True,
        keep_alive: int = 60,
        expiry: int = 0,
        will: Will | None = None,
        max_packet: int = 0,
        awake: int = 0,
        address_change: bool = False,
        auth: tuple[str, bytes] | None = None,
    ) -> bytes:
        client_id = self.client_id.encode()
        if self.profile == V12:
            flags = (0x08 if will else 0) | (0x04 if clean else 0)
            return bytes([flags, 1]) + keep_alive.to_bytes(2) + client_id
        method = b""
        if auth is not None:
            method = bytes([len(auth[0])]) + auth[0].encode() + len(auth[1]).to_bytes(2) + auth[1]
        head, parts = b"", b""
        if will is not None:
            name = will.topic_name.encode()
            head = bytes([(0x10 if will.retain else 0) | will.qos << 2 | FULL])
            size = len(will.payload).to_bytes(2)
            if self.profile == A:
                parts = len(name).to_bytes(2) + size + name + will.payload
            else:
                parts = len(name).to_bytes(2) + name + size + will.payload
        packet_id = self.next_id().to_bytes(2)
        flags = (4 if auth else 0) | (2 if will else 0) | (1 if clean else 0)
        if self.profile == A:
            flags |= awake << 3
            fixed = packet_id + b"\x02" + keep_alive.to_bytes(2) + expiry.to_bytes(4) + max_packet.to_bytes(2)
        else:
            flags |= (0x20 if address_change else 0) | (0x10 if awake else 0) | (0x08 if expiry else 0)
            fixed = packet_id + b"\x02" + keep_alive.to_bytes(2) + max_packet.to_bytes(2)
            fixed += (bytes([awake]) if awake else b"") + (expiry.to_bytes(4) if expiry else b"")
        return bytes([flags]) + head + fixed + parts + method + client_id

    def connect(self, *, will: Will | None = None, delete_will: bool = False, **options: object) -> Connack:
        """Connect; 1.2's dialogue about the will included."""
        body = self.connect_bytes(will=will, **options)  # type: ignore[arg-type]  # the options are the other's
        if self.profile == V12 and will is not None:
            self.ask("CONNECT", body, "WILLTOPICREQ")
            if not delete_will:
                topic = bytes([will.qos << 5 | (0x10 if will.retain else 0)]) + will.topic_name.encode()
                self.ask("WILLTOPIC", topic, "WILLMSGREQ")
                return self._connack(self.ask("WILLMSG", will.payload, "CONNACK"))
            return self._connack(self.ask("WILLTOPIC", b"", "CONNACK"))
        connack = self._connack(self.ask("CONNECT", body, "CONNACK"))
        if connack.assigned:
            self.client_id = connack.assigned
        return connack

    def _connack(self, seen: Seen) -> Connack:
        body = seen.body
        if self.profile == V12:
            return Connack(body[0])
        if self.profile == A:
            return Connack(body[3], bool(body[0] & 1), body[8:].decode())
        assert body[0] & 0x0E == 0, "no optional fields were asked for"
        return Connack(body[3], bool(body[0] & 1), body[4:].decode())

    def register(self, name: str) -> int:
        """The alias for a topic name; a refusal is its code, below 0."""
        packet_id = self.next_id()
        two = packet_id.to_bytes(2)
        if self.profile == V12:
            body = self.ask("REGISTER", b"\0\0" + two + name.encode(), "REGACK", packet_id).body
            alias, reason = int.from_bytes(body[:2]), body[4]
        elif self.profile == A:
            body = self.ask("REGISTER", two + b"\0\0" + name.encode(), "REGACK", packet_id).body
            alias, reason = int.from_bytes(body[3:5]), body[5]
        else:
            body = self.ask("REGISTER", b"\0" + two + name.encode(), "REGACK", packet_id).body
            alias = int.from_bytes(body[3:5]) if body[0] & 4 else 0
            reason = body[5] if len(body) > 5 else (0 if body[0] & 4 else body[3])
        if alias:
            self.names[alias] = name
            self.aliases[name] = alias
        return alias if reason < 0x80 and alias else -reason

    def publish_bytes(
        self, reference: tuple[int, bytes, bytes], payload: bytes, qos: int, retain: bool, packet_id: int
    ) -> bytes:
        kind, two, name = reference
        flags = bytes([qos << 5 | (0x10 if retain else 0) | kind])
        ident = packet_id.to_bytes(2)
        if self.profile == V12:
            return flags + two + ident + payload
        return flags + (ident if qos else b"") + two + name + payload

    def reference(self, topic: str | int, how: str = "") -> tuple[int, bytes, bytes]:
        """How to name a topic: an alias (registered if need be), "name", "short" or a predefined number."""
        if isinstance(topic, int):
            return PREDEFINED, topic.to_bytes(2), b""
        if how == "short":
            return SHORT, topic.encode(), b""
        if how == "name" or (not how and self.profile != V12):
            return FULL, len(topic.encode()).to_bytes(2), topic.encode()
        if topic not in self.aliases:
            assert self.register(topic) > 0
        return ALIAS, self.aliases[topic].to_bytes(2), b""

    def publish(self, topic: str | int, payload: bytes, qos: int = 0, retain: bool = False, how: str = "") -> int:
        """Publish and wait for what the QoS promises; returns the reason code of the answer."""
        reference = self.reference(topic, how)
        if qos == 0:
            self.send("PUBLISH", self.publish_bytes(reference, payload, 0, retain, 0))
            return 0
        packet_id = self.next_id()
        body = self.publish_bytes(reference, payload, qos, retain, packet_id)
        # 1.2's PUBREC cannot say no: a PUBACK does.
        answers = "PUBACK" if qos == 1 else "PUBREC|PUBACK" if self.profile == V12 else "PUBREC"
        answer = self.ask("PUBLISH", body, answers, packet_id)
        reason = self._reason(answer)
        if answer.name == "PUBREC" and reason < 0x80:
            two = packet_id.to_bytes(2) + (b"\0" if self.profile == A else b"")
            self.ask("PUBREL", two, "PUBCOMP", packet_id)
        return reason

    def _reason(self, seen: Seen) -> int:
        if self.profile == V12:
            return seen.body[4] if seen.name == "PUBACK" else 0
        return seen.body[2] if len(seen.body) > 2 else 0

    def subscribe(
        self,
        topic: str | int,
        qos: int = 0,
        *,
        no_local: bool = False,
        as_published: bool = False,
        handling: int = 0,
        how: str = "",
    ) -> Suback:
        packet_id = self.next_id()
        if isinstance(topic, int):
            kind, rest = PREDEFINED, topic.to_bytes(2)
        elif how == "short":
            kind, rest = SHORT, topic.encode()
        else:
            kind, rest = (0 if self.profile == V12 else FULL), topic.encode()
        flags = (0x80 if no_local else 0) | qos << 5 | (0x10 if as_published else 0) | handling << 2 | kind
        seen = self.ask("SUBSCRIBE", bytes([flags]) + packet_id.to_bytes(2) + rest, "SUBACK", packet_id)
        return self._suback(seen, topic)

    def _suback(self, seen: Seen, topic: str | int) -> Suback:
        body = seen.body
        if self.profile == V12:
            alias, kind = int.from_bytes(body[1:3]), PREDEFINED if isinstance(topic, int) else ALIAS
            reason = body[5] or (body[0] >> 5) & 3
        elif self.profile == A:
            alias, kind, reason = int.from_bytes(body[1:3]), body[0] & 3, body[5]
        else:
            kind, alias = body[0] & 3, int.from_bytes(body[3:5]) if body[0] & 4 else 0
            reason = body[-1]
        if alias and kind == ALIAS and isinstance(topic, str):
            self.names[alias] = topic
            self.aliases[topic] = alias
        return Suback(reason, alias)

    def unsubscribe(self, topic: str) -> int:
        packet_id = self.next_id()
        kind = 0 if self.profile == V12 else FULL
        seen = self.ask("UNSUBSCRIBE", bytes([kind]) + packet_id.to_bytes(2) + topic.encode(), "UNSUBACK", packet_id)
        return seen.body[2] if len(seen.body) > 2 else 0

    def ping(self) -> Seen:
        if self.profile == V12:
            return self.ask("PINGREQ", b"", "PINGRESP")
        packet_id = self.next_id()
        return self.ask("PINGREQ", packet_id.to_bytes(2), "PINGRESP", packet_id)

    def drain(self) -> list[Message]:
        """All messages that were on their way: pings until three in a row bring nothing but their answer."""
        quiet = 0
        while quiet < 3:
            before = self.datagrams
            self.ping()
            quiet = quiet + 1 if self.datagrams == before + 1 else 0
        return self.take()

    def drain_lossy(self) -> list[Message]:
        """What still comes while ten pings are answered over a network that loses some of them."""
        for _ in range(10):
            self.ping()
        return self.take()

    def take(self) -> list[Message]:
        messages, self.messages = self.messages, []
        return messages

    def await_messages(self, count: int, timeout_s: float = TIMEOUT_S) -> list[Message]:
        """So many messages, which something else sets off."""
        deadline = time.monotonic() + timeout_s
        while len(self.messages) < count:
            assert self._read(deadline), f"only {self.messages}"
        return self.take()

    def sleep(self, seconds: int, retain_aliases: bool = False) -> None:
        if self.profile == V12:
            self.ask("DISCONNECT", seconds.to_bytes(2), "DISCONNECT")
        elif self.profile == A:
            flags = 4 | (1 if retain_aliases else 0)
            self.ask("DISCONNECT", bytes([flags]) + seconds.to_bytes(4), "DISCONNECT")
        else:
            packet_id = self.next_id()
            body = bytes([1 if retain_aliases else 0]) + packet_id.to_bytes(2) + seconds.to_bytes(4)
            self.ask("SLEEPREQ", body, "SLEEPRESP", packet_id)

    def wake(self) -> tuple[list[Message], int]:
        """Fetch what waits; returns the messages and how many the PINGRESP says are left (-1: it does not say)."""
        client_id = self.client_id.encode()
        if self.profile == V12:
            self.ask("PINGREQ", client_id, "PINGRESP")
            return self.take(), -1
        packet_id = self.next_id()
        body = packet_id.to_bytes(2) + (client_id if self.profile == A else b"")
        seen = self.ask("PINGREQ", body, "PINGRESP", packet_id)
        return self.take(), seen.body[2] if len(seen.body) > 2 else -1

    def disconnect(self, reason: int = 0) -> None:
        if self.profile == V12:
            self.ask("DISCONNECT", b"", "DISCONNECT")
        elif self.profile == A:
            self.ask("DISCONNECT", bytes([8, reason]) if reason else b"\0", "DISCONNECT")
        else:
            self.send("DISCONNECT", bytes([4, reason]) if reason else b"\0")
