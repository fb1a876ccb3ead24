"""A network that fails on demand: a TCP proxy between clients and a broker that knows where MQTT packets end.

Owns: the connections through it, and the faults that are on. Each fault is on from the call until `heal`.
Never: a change of a packet that no fault asks for.

    with mqtt_broker.faults() as network:
        device = Device(network.host, network.port)
        network.silence()  # the connection stays, and nothing passes
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypeVar, final

from embermq.protocol.mqtt.fields import variable_byte_integer
from embermq.protocol.packets import CONNECT, PUBACK, PUBLISH, PUBREC, SUBACK, UNSUBACK
from embermq.protocol.reasons import ReasonCode

READ_BYTES: Final = 64 * 1024
PACKETS_MAX: Final = 1_000
"""How many packets wait in each direction of a connection; then no more are read."""
LEVEL_5: Final = 5
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: a closed connection is reset, as by a broken network."""
# Reason of MQTT 5 -> return code of a CONNACK before (3.1.1, 3.2.2.3); others are 3, server unavailable.
_RETURN_CODES: Final[dict[int, int]] = {
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: 2,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: 4,
    ReasonCode.NOT_AUTHORIZED: 5,
}

T = TypeVar("T")
Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Waiting: TypeAlias = "asyncio.Queue[tuple[float, bytes] | None]"
"""Packets of one direction, each with the instant at which it is due; None: no more come."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Which faults are on. The reasons are codes of MQTT 5; None: none."""

    refusal: int | None = None
    reason: int | None = None
    delay_s: float = 0.0
    has_duplicates: bool = False
    is_silent: bool = False


@final
class FaultyNetwork:
    """The proxy, as a context manager; clients connect to `host` and `port`."""

    def __init__(self, broker_host: str, broker_port: int) -> None:
        self._broker: Final = (broker_host, broker_port)
        self.host: Final = "127.0.0.1"
        self.port = 0
        self._loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._loop.run_forever, name="embermq-faults", daemon=True)
        self._connections: Final[set[_Connection]] = set()
        self._server: asyncio.Server | None = None
        self.faults = Faults()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- faults --------------------------------------------------------------------------------------------------------

    def refuse(self, reason: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        """Answer every CONNECT with this reason, and close the connection."""
        self._call(self._change(replace(self.faults, refusal=reason)))

    def drop(self) -> None:
        """Reset all connections, now; new ones are accepted."""
        self._call(self._drop())

    def delay(self, seconds: float) -> None:
        """Hold back each packet for a while, in both directions."""
        self._call(self._change(replace(self.faults, delay_s=seconds)))

    def duplicate(self) -> None:
        """Send each PUBLISH to a client twice, with DUP the second time at QoS 1 and 2."""
        self._call(self._change(replace(self.faults, has_duplicates=True)))

    def silence(self) -> None:
        """Let nothing pass, in both directions, while connections stay open. `heal` lets it pass."""
        self._call(self._change(replace(self.faults, is_silent=True)))

    def answer(self, reason: int) -> None:
        """Give PUBACK, PUBREC, SUBACK and UNSUBACK this reason code; before MQTT 5, SUBACK alone has one."""
        self._call(self._change(replace(self.faults, reason=reason)))

    def heal(self) -> None:
        """End all faults."""
        self._call(self._change(Faults()))

    # -- on the proxy's thread -----------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _change(self, faults: Faults) -> None:
        self.faults = faults
        for connection in self._connections:
            connection.changed.set()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._drop()

    async def _drop(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.reset()
        for connection in connections:
            await connection.ended.wait()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_broker = await asyncio.open_connection(*self._broker)
        except OSError:
            writer.close()  # as if nobody listened
            return
        connection = _Connection(self, (reader, writer), to_broker)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)
            connection.ended.set()


@final
class _Connection:
    """One client's connection, and its continuation to the broker. `changed`: other faults are on. `ended`: it is over,
    on both sides.
    """

    def __init__(self, network: FaultyNetwork, client: Stream, broker: Stream) -> None:
        self.changed: Final = asyncio.Event()
        self.ended: Final = asyncio.Event()
        self._was_reset: Final = asyncio.Event()
        self._network: Final = network
        self._client: Final = client
        self._broker: Final = broker
        self._level = 0  # of the client's protocol

    async def run(self) -> None:
        """Let packets pass until either side has ended and the other one has what came before."""
        (from_client, to_client), (from_broker, to_broker) = self._client, self._broker
        ends = [
            asyncio.create_task(end)
            for end in (
                self._pass(True, from_client, to_broker),
                self._pass(False, from_broker, to_client),
                self._was_reset.wait(),
            )
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(ends)
            to_client.close()
            to_broker.close()

    def reset(self) -> None:
        """End the connection as a broken network does."""
        for _, writer in (self._client, self._broker):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        self._was_reset.set()

    async def _pass(self, from_client: bool, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """One direction. Reading and writing go on beside each other: a packet that is held back does not hold back
        those behind it, nor the end.
        """
        waiting: Waiting = asyncio.Queue(PACKETS_MAX)
        reading = asyncio.create_task(self._read(from_client, source, waiting))
        writing = asyncio.create_task(self._write(target, waiting))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done() and reading.exception() is None:
                await writing
        finally:
            await _cancel([reading, writing])

    async def _read(self, from_client: bool, source: asyncio.StreamReader, waiting: "Waiting") -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                packet = await read_packet(source)
            except asyncio.IncompleteReadError:
                await waiting.put(None)
                return
            faults = self._network.faults
            packet_type = packet[0] >> 4
            if from_client and packet_type == CONNECT:
                self._level = level_of(packet)
                if faults.refusal is not None:
                    self._client[1].write(connack(self._level, faults.refusal))
                    await self._client[1].drain()
                    await waiting.put(None)
                    return
            due_s = loop.time() + faults.delay_s
            if not from_client and faults.reason is not None:
                packet = with_reason(packet, self._level, faults.reason)
            await waiting.put((due_s, packet))
            if not from_client and faults.has_duplicates and packet_type == PUBLISH:
                dup = 0x08 if packet[0] & 0x06 else 0
                await waiting.put((due_s, bytes((packet[0] | dup,)) + packet[1:]))

    async def _write(self, target: asyncio.StreamWriter, waiting: "Waiting") -> None:
        loop = asyncio.get_running_loop()
        while (held := await waiting.get()) is not None:
            due_s, packet = held
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            while self._network.faults.is_silent:
                self.changed.clear()
                await self.changed.wait()
            target.write(packet)
            await target.drain()


async def _cancel(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def read_packet(source: asyncio.StreamReader) -> bytes:
    """The next packet with its fixed header (2.2)."""
    header = await source.readexactly(2)
    while header[-1] & 0x80:
        header += await source.readexactly(1)
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(header[1:]))
    return header + await source.readexactly(length)


def body_of(packet: bytes) -> bytes:
    """What follows the fixed header."""
    end = 1
    while packet[end] & 0x80:
        end += 1
    return packet[end + 1 :]


def level_of(connect: bytes) -> int:
    """The protocol level of a CONNECT, which follows the protocol name (3.1.2.2)."""
    body = body_of(connect)
    return body[2 + int.from_bytes(body[:2], "big")]


def connack(level: int, reason: int) -> bytes:
    """A CONNACK that refuses a client (3.2)."""
    if level < LEVEL_5:
        return bytes((0x20, 2, 0, _RETURN_CODES.get(reason, 3)))
    return bytes((0x20, 3, 0, reason, 0))


def with_reason(packet: bytes, level: int, reason: int) -> bytes:
    """An answer with another reason code, without properties; other packets as they are."""
    packet_type = packet[0] >> 4
    body = body_of(packet)
    packet_id = body[:2]
    if level < LEVEL_5:
        if packet_type != SUBACK:
            return packet
        return packet[: len(packet) - len(body)] + packet_id + bytes((0x80,)) * (len(body) - 2)
    if packet_type in (PUBACK, PUBREC):
        return bytes((packet[0], 3)) + packet_id + bytes((reason,))
    if packet_type in (SUBACK, UNSUBACK):
        count = len(body) - 3 - body[2]  # behind the properties, which are few here
        length = variable_byte_integer(3 + count)
        return packet[:1] + length + packet_id + b"\x00" + bytes((reason,)) * count
    return packet


@final
class AsyncFaultyNetwork:
    """`FaultyNetwork` for code in an event loop, as an asynchronous context manager: the same names, awaited."""

    def __init__(self, network: FaultyNetwork) -> None:
        self.network: Final = network

    @property
    def host(self) -> str:
        return self.network.host

    @property
    def port(self) -> int:
        return self.network.port

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.network.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.network.__exit__, kind, error, trace)

    async def refuse(self, reason: int = ReasonCode.SERVER_UNAVAILABLE) -> None:
        await asyncio.to_thread(self.network.refuse, reason)

    async def drop(self) -> None:
        await asyncio.to_thread(self.network.drop)

    async def delay(self, seconds: float) -> None:
        await asyncio.to_thread(self.network.delay, seconds)

    async def duplicate(self) -> None:
        await asyncio.to_thread(self.network.duplicate)

    async def silence(self) -> None:
        await asyncio.to_thread(self.network.silence)

    async def answer(self, reason: int) -> None:
        await asyncio.to_thread(self.network.answer, reason)

    async def heal(self) -> None:
        await asyncio.to_thread(self.network.heal)
