"""The unit of work is a turn: what one read brings leaves in one write for each client it touches."""

import asyncio
import socket
from itertools import pairwise

import pytest

from embermq import Broker
from embermq.broker.access import AllowAll
from embermq.broker.limits import Limits
from embermq.protocol.mqtt.decode import Decoder
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Subscribe,
    SubscriptionRequest,
)
from embermq.store.interface import Store
from embermq.store.memory import MemoryStore
from embermq.transport.server import Server
from embermq.transport.stream import READ_MUCH_BYTES, StreamConnection
from support.clauses import v311
from support.stores import ScriptedStore


class CountingTransport:
    """Counts the writes; `stuck` makes the peer one that never reads."""

    def __init__(self, stuck: bool = False) -> None:
        self.writes: list[bytes] = []
        self.stuck = stuck
        self.paused = False
        self.ended = ""
        self.connection: StreamConnection | None = None

    def write(self, data: bytes) -> None:
        assert not self.ended, "a transport that has ended raises"
        self.writes.append(data)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes)) if self.stuck else 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self._end("closed")

    def abort(self) -> None:
        self._end("aborted")

    def _end(self, how: str) -> None:
        if not self.ended and self.connection is not None:
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)
        self.ended = how

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


def packets(transport: CountingTransport) -> list[Packet]:
    found = Decoder(1 << 28, server=False).feed(b"".join(transport.writes))
    transport.writes.clear()
    return found


async def joined(server: Server, name: str, *filters: str, qos: int = 0, stuck: bool = False) -> tuple:
    transport = CountingTransport()
    connection = transport.connection = StreamConnection(server)
    connection.attach(transport)
    connection.data_received(encode(Connect(name)))
    if filters:
        requests = [SubscriptionRequest(topic_filter, qos) for topic_filter in filters]
        connection.data_received(encode(Subscribe(1, requests)))
    await asyncio.sleep(0)
    assert len(packets(transport)) == (2 if filters else 1)
    transport.stuck = stuck
    return connection, transport


async def started(store: Store | None = None, **limits: int) -> Server:
    store = store if store is not None else MemoryStore()
    server = Server(store=store, access=AllowAll(), limits=Limits(**limits), sys_interval_s=0)
    await server.start()
    return server


@pytest.mark.parametrize("qos", [0, 1])
def test_500_messages_in_one_read_are_one_write_for_each_subscriber(qos: int) -> None:
    async def scenario() -> None:
        server = await started(inflight_max=1000)
        readers = [await joined(server, f"r{n}", "t/#", qos=qos) for n in range(3)]
        bystander = await joined(server, "b", "other")
        writer, acks = await joined(server, "w")
        data = b"".join(encode(Publish(f"t/{n}", b"x" * 50, qos, packet_id=n + 1 if qos else 0)) for n in range(500))
        writer.data_received(data)
        await asyncio.sleep(0)
        for _, transport in readers:
            assert len(transport.writes) == 1
            assert [p.topic_name for p in packets(transport)] == [f"t/{n}" for n in range(500)]
        assert bystander[1].writes == []
        assert len(acks.writes) == (1 if qos else 0)
        assert packets(acks) == ([Puback(n + 1) for n in range(500)] if qos else [])
        await server.stop()

    asyncio.run(scenario())


def test_many_reads_of_one_pass_are_one_write() -> None:
    async def scenario() -> None:
        server = await started()
        _, transport = await joined(server, "r", "t")
        writers = [(await joined(server, f"w{n}"))[0] for n in range(20)]
        for writer in writers:
            writer.data_received(encode(Publish("t", b"x")))
        await asyncio.sleep(0)
        assert len(transport.writes) == 1
        assert len(packets(transport)) == 20
        await server.stop()

    asyncio.run(scenario())


def test_a_client_that_brings_much_is_read_from_again_when_the_turn_has_ended() -> None:
    async def scenario() -> None:
        server = await started()
        writer, transport = await joined(server, "w")
        message = encode(Publish("t", b"x" * 50))
        writer.data_received(message * 100)
        assert not transport.paused
        writer.data_received(message * (READ_MUCH_BYTES // len(message) + 1))
        assert transport.paused
        await asyncio.sleep(0)
        assert not transport.paused
        await server.stop()

    asyncio.run(scenario())


def test_one_clients_flood_does_not_become_one_endless_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    end_turn = Server._end_turn

    def counting(server: Server) -> None:
        turns.append(server.core.counters.bytes_received)
        end_turn(server)

    monkeypatch.setattr(Server, "_end_turn", counting)
    with Broker.in_thread() as broker, socket.create_connection((broker.host, broker.port), timeout=30) as client:
        client.sendall(encode(Connect("flood")) + encode(Publish("t", b"x")) * 500_000 + encode(Pingreq()))
        answers = b""
        while len(answers) < 6:
            answers += client.recv(6)
    assert answers == encode(Connack(False, 0)) + encode(Pingresp())
    assert max(after - before for before, after in pairwise(turns)) < 4 * READ_MUCH_BYTES


def test_a_reader_that_never_reads_is_bounded_by_its_cap_and_others_go_on() -> None:
    async def scenario() -> None:
        cap = 100_000
        server = await started(output_bytes_max=cap)
        _, stuck = await joined(server, "stuck", "t", qos=1, stuck=True)
        _, fine = await joined(server, "fine", "t", qos=1)
        writer, _ = await joined(server, "w")
        for n in range(300):
            writer.data_received(encode(Publish("t", b"%06d" % n + b"x" * 1000)))
            await asyncio.sleep(0)
        assert len(packets(fine)) == 300
        assert stuck.get_write_buffer_size() < cap + 2_000
        assert server.core.counters.dropped_output_full > 150
        # QoS 1 is not dropped: it waits in the session's queue.
        writer.data_received(encode(Publish("t", b"must arrive", 1, packet_id=1)))
        await asyncio.sleep(0)
        [waiting] = [s.outbound.backlog for s in server.core.sessions() if s.client_id == "stuck"]
        assert [queued.message.payload for queued in waiting] == [b"must arrive"]
        await server.stop()

    asyncio.run(scenario())


@v311("MQTT-2.2.2-2")
def test_good_packets_before_a_bad_one_are_processed_and_then_the_connection_ends() -> None:
    async def scenario() -> None:
        server = await started()
        _, transport = await joined(server, "r", "t")
        writer, wire = await joined(server, "w")
        writer.data_received(encode(Publish("t", b"good")) + b"\xf0\x00" + encode(Publish("t", b"after")))
        await asyncio.sleep(0)
        assert [p.payload for p in packets(transport)] == [b"good"]
        assert wire.ended == "closed"
        await server.stop()

    asyncio.run(scenario())


def test_a_bug_of_ours_ends_one_connection_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        server = await started()
        _, transport = await joined(server, "r", "t")
        unlucky, wire = await joined(server, "u")
        writer, _ = await joined(server, "w")

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(type(server.core), "receive", broken)
            unlucky.data_received(encode(Publish("t", b"x")))
        writer.data_received(encode(Publish("t", b"goes on")))
        await asyncio.sleep(0)
        assert wire.ended == "closed"
        assert server.core.counters.internal_errors == 1
        assert [p.payload for p in packets(transport)] == [b"goes on"]
        await server.stop()

    asyncio.run(scenario())


def test_a_client_that_goes_while_its_acknowledgement_waits_takes_nobody_with_it() -> None:
    async def scenario() -> None:
        server = await started(store := ScriptedStore())
        leaver, gone = await joined(server, "leaver")
        writer, acks = await joined(server, "w")
        leaver.data_received(encode(Publish("t", b"x", 1, packet_id=1)))
        writer.data_received(encode(Publish("t", b"x", 1, packet_id=2)))
        await asyncio.sleep(0)
        gone.abort()
        await asyncio.sleep(0)
        store.finish()
        await asyncio.sleep(0)
        assert gone.writes == []
        assert packets(acks) == [Puback(2)]
        await server.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_large_payload_is_not_copied_for_each_receiver(qos: int) -> None:
    async def scenario() -> None:
        server = await started()
        readers = [await joined(server, f"r{n}", "t", qos=qos) for n in range(3)]
        writer, _ = await joined(server, "w")
        sent = server.core.counters.messages_sent
        sizes = [5, 300_000, 5]
        messages = [Publish("t", bytes(size), qos, packet_id=n if qos else 0) for n, size in enumerate(sizes, 1)]
        writer.data_received(b"".join(map(encode, messages)))
        await asyncio.sleep(0)
        parts = [next(part for part in transport.writes if len(part) >= 300_000) for _, transport in readers]
        assert all(part is parts[0] for part in parts)
        acknowledgements = 3 if qos else 0
        assert server.core.counters.messages_sent - sent == 9 + acknowledgements
        for _, transport in readers:
            assert [len(p.payload) for p in packets(transport)] == sizes
        await server.stop()

    asyncio.run(scenario())
