"""A server whose poll the test looks at itself, turn by turn, and clients on real sockets."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress

from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Packet
from embermq.store.engines.memory import MemoryStore
from embermq.transport.server import Server
from embermq.transport.sockets.interface import CLOSED
from embermq.transport.sockets.poll import EVENTS_MAX, Poll
from embermq.transport.sockets.stream_socket import StreamSocket
from support.transports import connection_of

TIMEOUT_S = 60.0
PEER = ("127.0.0.1", 1883)


def look(poll: Poll) -> list[tuple[int, int]]:
    """One turn, as soon as something is ready, which must be soon."""
    ready = poll.wait(TIMEOUT_S, EVENTS_MAX)
    assert ready, "nothing is ready"
    return poll.look(ready)


def is_silent(poll: Poll) -> bool:
    """Whether nothing is ready: a poll that is not would keep a CPU busy."""
    return not poll.wait(0, EVENTS_MAX)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """The client's and the server's socket of one connection on TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), TIMEOUT_S)
        return client, listening.accept()[0]


def unix_pair() -> tuple[socket.socket, socket.socket]:
    client, served = socket.socketpair()
    client.settimeout(TIMEOUT_S)
    return client, served


class Pair:
    """A client's socket, and the stream and the connection of the server for it. `pair`: of which kind."""

    def __init__(
        self, server: Server, poll: Poll, pair: Callable[[], tuple[socket.socket, socket.socket]] = tcp_pair
    ) -> None:
        self.client, served = pair()
        served.setblocking(False)
        served.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)  # so that little fills it
        self._poll = poll
        self.connection = connection_of(server)
        self.stream = StreamSocket(poll, served.detach(), PEER, self.connection)
        poll.add(self.stream)
        self.connection.connection_made(self.stream)

    def send(self, *packets: Packet) -> None:
        self.client.sendall(b"".join(map(encode, packets)))

    def fill(self, part_bytes: int = 40_000) -> bytes:
        """Write until the kernel takes no more than a part of the last part; returns what was written."""
        written = bytearray()
        while not self.stream.get_write_buffer_size():
            part = bytes([len(written) % 251]) * part_bytes
            self.stream.write(part)
            written += part
        return bytes(written)

    def read_all(self, count: int) -> bytes:
        """What the client reads while the server has turns, until it is as much."""
        self.client.setblocking(False)
        read = bytearray()
        while len(read) < count:
            with suppress(BlockingIOError):
                part = self.client.recv(1 << 20)
                assert part, f"the connection has ended after {len(read)} bytes"
                read += part
                continue
            if self.stream.get_write_buffer_size():
                look(self._poll)
        self.client.settimeout(TIMEOUT_S)
        return bytes(read)

    def reset(self) -> None:
        """The client goes with a TCP reset."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.close()

    def is_closed(self) -> bool:
        """Whether the server has closed its socket."""
        return self.stream.descriptor == CLOSED

    def is_told(self) -> bool:
        """Whether the connection knows that its socket was closed."""
        return self.connection._transport is None


Scenario = Callable[[Server, Poll], Coroutine[None, None, None]]


def run(scenario: Scenario, *, internal_errors: int = 0, limits: Limits | None = None) -> None:
    """Run a scenario on a server of its own and a poll that has turns when the scenario says so."""

    async def whole() -> None:
        loop = asyncio.get_running_loop()
        failures: list[dict[str, object]] = []  # of what the event loop has called
        loop.set_exception_handler(lambda _, failure: failures.append(failure))
        poll = Poll(loop)
        server = Server(store=MemoryStore(), access=AllowAll(), limits=limits or Limits(), sys_interval_s=0)
        assert poll.take(server)
        await server.start()
        await asyncio.sleep(0)  # the turn that the start has begun ends
        try:
            await scenario(server, poll)
            assert server.core.counters.internal_errors == internal_errors
            assert not failures
        finally:
            await server.stop()
            poll.close()

    asyncio.run(whole())
