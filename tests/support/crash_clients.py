"""The clients of a crash test: small, quick MQTT on asyncio, each with a session that outlives its connections.

Owns: the client's side of the exchanges: what is in flight at a publisher, the QoS 2 state of a receiver.
Never: the product's codec; a judgement, which is the checker's. A client forgets nothing, whatever the server does.
"""

import asyncio
from random import Random

from support import wire
from support.crash_checker import KEPT, LIVE, Checker, payload_of

WINDOW = 24
PACKET_IDS = 60
"""A publisher's ids go round quickly, so that one the server has not let go of would be found out."""
LAG_S = 0.02


class Peer(asyncio.Protocol):
    """One client id. `open` again after the connection was lost."""

    def __init__(self, client_id: str, checker: Checker, *, clean: bool = False) -> None:
        self.client_id = client_id
        self.checker = checker
        self.may_drop = True  # whether the end of the connection is expected: the server is about to be killed
        self._clean = clean
        self._transport: asyncio.Transport | None = None
        self._input = bytearray()
        self._output: list[bytes] = []
        self._ready: asyncio.Event = asyncio.Event()
        self._lost: asyncio.Event = asyncio.Event()
        self._lost.set()
        self._pinged: asyncio.Event = asyncio.Event()

    async def open(self, port: int) -> bool:
        """Connect; False if the server ended meanwhile."""
        self._input.clear()
        self._output.clear()
        self._ready.clear()
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", port)
        except OSError:
            return False
        ready = asyncio.ensure_future(self._ready.wait())
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait((ready, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            lost.cancel()
        return self._ready.is_set()

    async def drop(self) -> None:
        """End the connection without a word."""
        if self._transport is not None:
            self.may_drop = True
            self._transport.abort()
        await self._lost.wait()

    async def gone(self) -> None:
        await self._lost.wait()

    async def ping(self) -> None:
        """The server has handled what was sent before, or is gone."""
        self._pinged.clear()
        self.write(wire.packet(wire.PINGREQ, 0))
        self.flush()
        await self._pinged.wait()

    def is_open(self) -> bool:
        return not self._lost.is_set()

    # -- bytes -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._lost.clear()
        transport.write(self.connect_packet())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.may_drop:
            self.checker.wrong(f"{self.client_id}: the server closed the connection")
        self._lost.set()
        self._pinged.set()

    def data_received(self, data: bytes) -> None:
        self._input += data
        view = bytes(self._input)
        position = 0
        while True:
            body = _body_of_packet(view, position)
            if body is None:
                break
            head, end = body
            self._take(view[position] >> 4, view[position] & 15, view[head:end])
            position = end
        del self._input[:position]
        self.flush()

    def write(self, data: bytes) -> None:
        self._output.append(data)

    def flush(self) -> None:
        if self._output and self._transport is not None:
            self._transport.write(b"".join(self._output))
        self._output.clear()

    def _take(self, kind: int, flags: int, body: bytes) -> None:
        if kind == wire.CONNACK:
            if body[1] != 0 and self.may_drop:
                return  # a server that stops refuses
            if body[1] != 0:
                self.checker.wrong(f"{self.client_id}: CONNACK with return code {body[1]}")
                return
            if self._clean:
                self.checker.ended(self.client_id)
            else:
                self._take_session(body[0])
            self.opened()
            self._ready.set()
        elif kind == wire.PINGRESP:
            self._pinged.set()
        elif kind == wire.DISCONNECT and self.may_drop:
            pass  # a server that stops says so to clients of MQTT 5
        else:
            self.received(kind, flags, body)

    def _take_session(self, session_present: int) -> None:
        self.checker.connected(self.client_id, session_present)

    # -- what a kind of client does ------------------------------------------------------------------------------

    def connect_packet(self) -> bytes:
        return wire.connect(self.client_id, clean=self._clean, keep_alive=0)

    def opened(self) -> None:
        """CONNACK has come."""

    def received(self, kind: int, flags: int, body: bytes) -> None:
        self.checker.wrong(f"{self.client_id}: packet type {kind}")


class Publisher(Peer):
    """Keeps a window of QoS 1 and QoS 2 messages in flight on its streams."""

    def __init__(self, client_id: str, checker: Checker, random: Random, topic_names: dict[str, int]) -> None:
        super().__init__(client_id, checker)
        self._random = random
        self._streams = list(topic_names.items())
        self._numbers = dict.fromkeys(topic_names, 0)
        self._last_packet_id = 0
        self.sending = True
        # By packet id, oldest first: topic name, number, QoS, and whether PUBREC has come.
        self.inflight: dict[int, tuple[str, int, int, bool]] = {}
        for topic_name, qos in self._streams:
            checker.stream(topic_name, qos)

    def opened(self) -> None:
        """MQTT-4.4.0-1: redo with the original ids, in order, what was not finished."""
        for packet_id, (topic_name, number, qos, released) in self.inflight.items():
            if released:
                self.write(wire.ack(wire.PUBREL, packet_id))
            else:
                self._publish(packet_id, topic_name, number, qos, dup=True)
        self._fill()

    def received(self, kind: int, flags: int, body: bytes) -> None:
        packet_id = int.from_bytes(body[:2])
        found = self.inflight.get(packet_id)
        if found is None:
            self.checker.wrong(f"{self.client_id}: packet type {kind} for an id that is not in flight")
            return
        topic_name, number, qos, released = found
        if kind == wire.PUBACK and qos == 1:
            self.checker.acknowledged(topic_name, number)
            del self.inflight[packet_id]
        elif kind == wire.PUBREC and qos == 2:
            if not released:
                self.checker.acknowledged(topic_name, number)
                self.inflight[packet_id] = (topic_name, number, qos, True)
            self.write(wire.ack(wire.PUBREL, packet_id))
        elif kind == wire.PUBCOMP and released:
            del self.inflight[packet_id]
        else:
            self.checker.wrong(f"{self.client_id}: packet type {kind} for a message with QoS {qos}")
        self._fill()

    def publish_last(self) -> None:
        """One message that every session wants, while nothing else is in flight: it is the last of every queue."""
        assert not self.sending
        assert not self.inflight
        self._publish_next(*next((name, qos) for name, qos in self._streams if name.startswith(LIVE)))
        self.flush()

    def _fill(self) -> None:
        while self.sending and len(self.inflight) < WINDOW:
            self._publish_next(*self._random.choice(self._streams))

    def _publish_next(self, topic_name: str, qos: int) -> None:
        number = self._numbers[topic_name] = self._numbers[topic_name] + 1
        packet_id = self._new_packet_id()
        self.inflight[packet_id] = (topic_name, number, qos, False)
        self._publish(packet_id, topic_name, number, qos, dup=False)

    def _new_packet_id(self) -> int:
        while True:
            self._last_packet_id = self._last_packet_id % PACKET_IDS + 1
            if self._last_packet_id not in self.inflight:
                return self._last_packet_id

    def _publish(self, packet_id: int, topic_name: str, number: int, qos: int, dup: bool) -> None:
        self.checker.sent(topic_name, number)
        retain = topic_name.startswith(KEPT)
        self.write(self.publish_packet(packet_id, topic_name, payload_of(topic_name, number), qos, retain, dup))

    def publish_packet(
        self, packet_id: int, topic_name: str, payload: bytes, qos: int, retain: bool, dup: bool
    ) -> bytes:
        return wire.publish(topic_name, payload, qos=qos, retain=retain, dup=dup, packet_id=packet_id)


class Subscriber(Peer):
    """Takes and acknowledges. With `lag` it does so a little later, so that a crash finds more on the way."""

    def __init__(self, client_id: str, checker: Checker, qos: int, *, lag: bool = False, prefix: str = "") -> None:
        """`prefix` is the first level of the streams it wants; all of them if it is empty."""
        super().__init__(client_id, checker)
        self.qos = qos
        self._prefix = prefix
        self._lag = lag
        self._lagging = False
        self._unreleased: dict[int, bytes] = {}  # QoS 2: by packet id, until PUBREL
        self.subscribed: asyncio.Event = asyncio.Event()

    def opened(self) -> None:
        if not self.subscribed.is_set():
            self.checker.subscribing(self.client_id, self.qos, self._prefix)
            self.write(self.subscribe_packets())

    def subscribe_packets(self) -> bytes:
        return wire.subscribe(1, *((f"{prefix}/#", self.qos) for prefix in (LIVE, KEPT) if self._wants(prefix)))

    def is_last_suback(self, packet_id: int) -> bool:
        """Whether all is subscribed to with the SUBACK of this packet identifier."""
        return True

    def granted(self, body: bytes) -> bytes:
        """The reason codes of a SUBACK."""
        return body[2:]

    def message_of(self, received: wire.Packet) -> wire.Message:
        return wire.message_of(received)

    def _wants(self, prefix: str) -> bool:
        return self._prefix in ("", prefix)

    def received(self, kind: int, flags: int, body: bytes) -> None:
        if kind == wire.PUBLISH:
            self._take_publish(flags, body)
        elif kind == wire.PUBREL:
            packet_id = int.from_bytes(body[:2])
            self._unreleased.pop(packet_id, None)
            self.write(wire.ack(wire.PUBCOMP, packet_id))
        elif kind == wire.SUBACK:
            if any(granted != self.qos for granted in self.granted(body)):
                self.checker.wrong(f"{self.client_id}: SUBACK {body[2:].hex()}")
            if self.is_last_suback(int.from_bytes(body[:2])):
                self.checker.subscribed(self.client_id)
                self.subscribed.set()
        else:
            self.checker.wrong(f"{self.client_id}: packet type {kind}")

    def _take_publish(self, flags: int, body: bytes) -> None:
        message = self.message_of(wire.Packet(wire.PUBLISH, flags, body))
        packet_id = message.packet_id
        if message.qos == 2 and packet_id in self._unreleased:
            known = self._unreleased[packet_id]
            self.checker.redelivered(self.client_id, packet_id, known == message.payload, message.dup)
        else:
            self.checker.delivered(
                self.client_id, message.topic_name, message.payload, message.qos, message.retain, message.dup
            )
            if message.qos == 2:
                self._unreleased[packet_id] = message.payload
        if message.qos:
            self.write(wire.ack(wire.PUBACK if message.qos == 1 else wire.PUBREC, packet_id))

    def flush(self) -> None:
        if not self._lag or not self._output:
            super().flush()
        elif not self._lagging:
            self._lagging = True
            asyncio.get_running_loop().call_later(LAG_S, self._catch_up)

    def _catch_up(self) -> None:
        self._lagging = False
        super().flush()


class Leaver(Peer):
    """Ends the session of a client id by asking for a clean one."""

    def __init__(self, client_id: str, checker: Checker) -> None:
        super().__init__(client_id, checker, clean=True)


class Onlooker(Peer):
    """A client without a session that looks at all retained messages."""

    def __init__(self, checker: Checker) -> None:
        super().__init__("onlooker", checker, clean=True)
        self.found: dict[str, bytes] = {}
        self._expected: set[str] = set()
        self._complete: asyncio.Event = asyncio.Event()

    async def look(self, port: int, topic_filter: str) -> None:
        """Wait for what must be there, then for whatever else the server had to send."""
        self.found = {}
        self._expected = self.checker.must_be_retained()
        self._complete.clear()
        if not await self.open(port):
            self.checker.wrong("onlooker: cannot connect to a server that is ready")
            return
        self.write(wire.subscribe(1, (topic_filter, 1)))
        self.flush()
        try:
            async with asyncio.timeout(wire.TIMEOUT_S):
                if self._expected:
                    await self._complete.wait()
        except TimeoutError:
            missing = sorted(self._expected - self.found.keys())
            self.checker.wrong(f"onlooker: never got what is retained for {', '.join(missing)}")
        await self.ping()
        await self.drop()
        self.checker.retained(self.found)

    def received(self, kind: int, flags: int, body: bytes) -> None:
        if kind != wire.PUBLISH:
            return
        message = wire.message_of(wire.Packet(kind, flags, body))
        if message.topic_name in self.found or not message.retain:
            self.checker.wrong(f"onlooker: {message.topic_name} came twice or without RETAIN")
        self.found[message.topic_name] = message.payload
        if message.qos:
            self.write(wire.ack(wire.PUBACK, message.packet_id))
        if self._expected <= self.found.keys():
            self._complete.set()


def _body_of_packet(view: bytes, position: int) -> tuple[int, int] | None:
    """Where the body of the packet at a position begins and ends; None if it is not all there."""
    length = shift = 0
    at = position + 1
    while at < len(view):
        digit = view[at]
        length |= (digit & 0x7F) << shift
        shift += 7
        at += 1
        if not digit & 0x80:
            return (at, at + length) if at + length <= len(view) else None
    return None
