"""Clients that send without reading, or faster than the disk writes: they are read from no more, and nothing grows."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

import pytest

from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import (
    SESSION_NEVER_EXPIRES,
    Connack,
    Connect,
    Packet,
    Pingreq,
    Publish,
    Pubrel,
    Subscribe,
    SubscriptionRequest,
)
from embermq.store.interface import Store
from embermq.store.memory import MemoryStore
from embermq.transport.server import Server
from embermq.transport.stream import WAITING_MAX, StreamConnection
from support.stores import ScriptedStore

PINGS = encode(Pingreq()) * 1_000


class Peer:
    """A transport and its client: `reads` says whether what is sent to it is taken."""

    def __init__(self, server: Server) -> None:
        self.reads = True
        self.reading = True
        self.unread = bytearray()
        self.read = bytearray()
        self.ended = ""
        self.connection = StreamConnection(server)
        self.connection.attach(self)

    def write(self, data: bytes) -> None:
        (self.read if self.reads else self.unread).extend(data)

    def catch_up(self) -> None:
        self.reads = True
        self.read += self.unread
        self.unread.clear()
        self.connection.resume_writing()

    def packets(self) -> list[Packet]:
        found = Decoder(1 << 28, server=False).feed(bytes(self.read))
        self.read.clear()
        return found

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or "aborted"

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    async def send(self, *packets: Packet) -> None:
        self.connection.data_received(b"".join(map(encode, packets)))
        await asyncio.sleep(0)


Scenario = Callable[[Server], Coroutine[None, None, None]]


def run(scenario: Scenario, store: Store | None = None, group_bytes_max: int = 1 << 20, **limits: int) -> None:
    async def whole() -> None:
        server = Server(
            store=store if store is not None else MemoryStore(),
            access=AllowAll(),
            limits=Limits(**limits),
            sys_interval_s=0,
            group_bytes_max=group_bytes_max,
        )
        await server.start()
        await scenario(server)
        assert server.core.counters.internal_errors == 0

    asyncio.run(whole())


def test_a_client_that_leaves_its_answers_unread_is_read_from_no_more() -> None:
    cap = 10_000

    async def scenario(server: Server) -> None:
        peer = Peer(server)
        await peer.send(Connect("never reads"))
        peer.reads = False
        for _ in range(1_000):
            if not peer.reading:
                break
            peer.connection.data_received(PINGS)
            await asyncio.sleep(0)
        assert not peer.reading
        assert cap < len(peer.unread) < 3 * cap
        peer.catch_up()
        assert peer.reading
        await peer.send(Pingreq())
        assert peer.reading

    run(scenario, output_bytes_max=cap)


def test_a_slow_subscriber_is_heard_although_its_output_is_full() -> None:
    async def scenario(server: Server) -> None:
        slow, writer = Peer(server), Peer(server)
        await slow.send(Connect("slow"), Subscribe(1, [SubscriptionRequest("t", 0)]))
        await writer.send(Connect("writer"))
        slow.reads = False
        for _ in range(30):
            await writer.send(Publish("t", bytes(1_000)))
            await slow.send(Pingreq())
        assert slow.reading
        assert server.core.counters.dropped_output_full > 10

    run(scenario, output_bytes_max=10_000)


@pytest.mark.parametrize("packet", [Pingreq(), Pubrel(7)])
def test_answers_that_wait_for_the_disk_are_bounded_for_each_client(packet: Packet) -> None:
    store = ScriptedStore()

    async def scenario(server: Server) -> None:
        hasty, other = Peer(server), Peer(server)
        await hasty.send(Connect("hasty"))
        await other.send(Connect("other"))
        await hasty.send(Publish("t", b"waits", 1, packet_id=1))
        fed = 0
        while hasty.reading and fed < 10 * WAITING_MAX:
            hasty.connection.data_received(encode(packet) * 500)
            fed += 500
        assert not hasty.reading
        assert fed <= WAITING_MAX + 500
        assert other.reading
        await asyncio.sleep(0)
        assert not hasty.reading
        store.finish()
        await asyncio.sleep(0)
        store.finish()
        await asyncio.sleep(0)
        assert hasty.reading
        assert len(hasty.packets()) == fed + 2  # CONNACK and PUBACK

    run(scenario, store)


def test_a_group_is_held_to_its_size_within_a_turn_too() -> None:
    store = ScriptedStore()
    store.counts_bytes = True

    async def scenario(server: Server) -> None:
        peers = [Peer(server) for _ in range(20)]
        for peer in peers:
            await peer.send(Connect(f"c{id(peer)}"))
        for peer in peers:
            if peer.reading:
                peer.connection.data_received(encode(Publish("t", bytes(5_000), 1, packet_id=1)))
        # All in one turn: whoever sends past the limit is not read from again, and the group stays near it.
        assert [peer.reading for peer in peers] == [True, True] + [False] * 18
        await asyncio.sleep(0)
        store.finish()
        await asyncio.sleep(0)
        assert all(peer.reading for peer in peers)

    run(scenario, store, group_bytes_max=10_000)


def test_a_client_whose_connack_waits_is_not_read_from_because_the_disk_has_caught_up() -> None:
    store = ScriptedStore()
    store.counts_bytes = True

    async def scenario(server: Server) -> None:
        store.gathered_bytes = 20_000
        peer = Peer(server)
        connect = Connect("persistent", False, session_expiry_s=SESSION_NEVER_EXPIRES)
        await peer.send(connect)
        await asyncio.sleep(0)
        assert not server.overfull()
        assert not peer.reading
        store.finish()
        await asyncio.sleep(0)
        assert peer.reading
        assert peer.packets() == [Connack(False, 0)]

    run(scenario, store, group_bytes_max=10_000)


def test_a_connect_that_is_not_answered_in_time_leaves_no_trace() -> None:
    store = ScriptedStore()

    async def scenario(server: Server) -> None:
        peer = Peer(server)
        await peer.send(Connect("waits", False, session_expiry_s=SESSION_NEVER_EXPIRES))
        assert server.core.counters.clients_connected == 1
        async with asyncio.timeout(5):
            while not peer.ended:
                await asyncio.sleep(0)
        peer.connection.connection_lost(None)
        assert server.core.counters.clients_connected == 0
        store.finish()
        await asyncio.sleep(0)
        [session] = server.core.sessions()
        assert session.link is None and session.opening is None
        assert peer.packets() == []

    run(scenario, store, connect_timeout_s=0)


def test_a_long_client_id_is_cut_in_the_log_and_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: Server) -> None:
        peer = Peer(server)
        await peer.send(Connect("a\n2026-01-01 ERROR forged\x1b[2J" + "x" * 60_000), Connect("again"))
        assert peer.ended == "closed"

    with caplog.at_level(logging.WARNING, "embermq"):
        run(scenario)
    [record] = caplog.records
    line = record.getMessage()
    assert "\n" not in line and "\x1b" not in line
    assert len(line) < 300
