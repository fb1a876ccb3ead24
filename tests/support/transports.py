"""A server without sockets: peers whose transport writes down what they are sent, and turns that a test ends.

Owns: the one double of a transport, and how many passes of the loop a turn takes.
"""

import asyncio
from collections.abc import Callable, Coroutine

from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Connect, Packet, Publish, Subscribe, SubscriptionRequest
from embermq.store.engines.memory import MemoryStore
from embermq.store.interface import Store
from embermq.transport.listener import Listener
from embermq.transport.server import GROUP_BYTES_MAX, Server
from embermq.transport.stream import StreamConnection
from support.acknowledgements import singles


def connection_of(server: Server, listener: Listener | None = None) -> StreamConnection:
    """A new connection to a listener, or to a plain one with the rules of the server."""
    return StreamConnection(server, listener or Listener(kind="tcp", limits=server.limits, access=server.access))


class Peer:
    """A client and the transport between it and the server.

    `reads`: whether the client takes what is sent to it; `is_read_from`: whether the server reads from it.
    `writes` are the parts that were written since the last `packets`; `ended` is how the server ended the connection.
    """

    def __init__(self, server: Server, listener: Listener | None = None) -> None:
        self.reads = True
        self.is_read_from = True
        self.writes: list[bytes] = []
        self.unread_bytes = 0
        self.ended = ""
        self.connection = connection_of(server, listener)
        self.connection.connection_made(self)

    # -- the transport ---------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert not self.ended, "a transport that has ended raises"
        self.writes.append(data)
        if not self.reads:
            self.unread_bytes += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        assert self.is_read_from
        self.is_read_from = False

    def resume_reading(self) -> None:
        assert not self.is_read_from
        self.is_read_from = True

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, how: str) -> None:
        if not self.ended:
            self.ended = how
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    # -- the client ------------------------------------------------------------------------------------------------

    def send_now(self, *packets: Packet) -> None:
        """One read of the server; the turn does not end."""
        self.connection.data_received(b"".join(map(encode, packets)))

    async def send(self, *packets: Packet) -> None:
        """One read of the server, and the end of its turn."""
        self.send_now(*packets)
        await turn()

    def catch_up(self) -> None:
        """The client has read everything."""
        self.reads = True
        self.unread_bytes = 0
        self.connection.resume_writing()

    def packets(self) -> list[Packet]:
        """What was sent to the client since the last time."""
        found = Decoder(1 << 28, server=False).feed(b"".join(self.writes))
        self.writes.clear()
        return singles(found)

    def messages(self) -> list[Publish]:
        return [packet for packet in self.packets() if isinstance(packet, Publish)]

    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages()]


async def turn() -> None:
    """The turn ends, and what another turn has to do because of it is done as well."""
    for _ in range(2):
        await asyncio.sleep(0)


async def joined(server: Server, client_id: str, *topic_filters: str, qos: int = 0) -> Peer:
    """A client that is connected and subscribed, and has read the answers."""
    peer = Peer(server)
    peer.send_now(Connect(client_id))
    if topic_filters:
        peer.send_now(Subscribe(1, [SubscriptionRequest(topic_filter, qos) for topic_filter in topic_filters]))
    await turn()
    assert len(peer.packets()) == (2 if topic_filters else 1)
    return peer


Scenario = Callable[[Server], Coroutine[None, None, None]]


LONG_TURN_S = 1e6
"""So that what a test sees does not depend on how busy the machine is."""


def run(
    scenario: Scenario,
    store: Store | None = None,
    *,
    group_bytes_max: int = GROUP_BYTES_MAX,
    shortcuts: bool = True,
    internal_errors: int = 0,
    used_bytes: Callable[[], int] = int,
    **limits: int,
) -> None:
    """Run a scenario on a server of its own, which has no bug on the way."""

    async def whole() -> None:
        server = Server(
            store=store if store is not None else MemoryStore(),
            access=AllowAll(),
            limits=Limits(**limits),
            sys_interval_s=0,
            group_bytes_max=group_bytes_max,
            shortcuts=shortcuts,
            used_bytes=used_bytes,
            long_turn_s=LONG_TURN_S,
        )
        await server.start()
        await scenario(server)
        assert server.core.counters.internal_errors == internal_errors

    asyncio.run(whole())
