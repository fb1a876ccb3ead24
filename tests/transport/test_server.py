"""The server's turn: many reads are one, a flood does not hold it up, and a bug of ours ends one connection."""

import socket
from collections.abc import Callable
from itertools import pairwise

from embermq import Broker
from embermq.protocol.mqtt.encode import encode
from embermq.protocol.packets import Connack, Connect, Pingreq, Pingresp, Publish
from embermq.transport.server import STOP_GRACE_S, Server
from embermq.transport.turn_time import SHARE_BYTES_MAX
from support.stores import ScriptedStore
from support.transports import Peer, joined, run, turn


def test_many_reads_of_one_pass_are_one_write() -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        writers = [await joined(server, f"w{n}") for n in range(20)]
        for writer in writers:
            writer.send_now(Publish("t", b"x"))
        await turn()
        assert len(reader.writes) == 1
        assert len(reader.packets()) == 20

    run(scenario)


def test_one_clients_flood_does_not_become_one_endless_turn() -> None:
    turns: list[int] = []
    with Broker.in_thread() as broker, socket.create_connection((broker.host, broker.port), timeout=60) as client:
        server = broker._server
        assert server is not None
        counters = server.core.counters
        server.end_of_turn.append(lambda: turns.append(counters.bytes_received))
        client.sendall(encode(Connect("flood")) + encode(Publish("t", b"x")) * 500_000 + encode(Pingreq()))
        answers = b""
        while len(answers) < 6:
            answers += client.recv(6)
    assert answers == encode(Connack(False, 0)) + encode(Pingresp())
    assert max(after - before for before, after in pairwise(turns)) < 4 * SHARE_BYTES_MAX


class StoreWithABug(ScriptedStore):
    """Raises what no store raises, when one client publishes."""

    def append_publish(self, message: Publish, client_id: str, qos2_session_id: int = 0) -> int:
        if client_id == "u":
            raise RuntimeError("a bug")
        return super().append_publish(message, client_id, qos2_session_id)


def test_a_bug_of_ours_ends_one_connection_and_is_counted() -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        unlucky, writer = await joined(server, "u"), await joined(server, "w")
        await unlucky.send(Publish("t", b"x", 1, packet_id=1))
        await writer.send(Publish("t", b"goes on"))
        assert unlucky.ended == "closed"
        assert reader.payloads() == [b"goes on"]
        assert not any(session.client_id == "u" for session in server.core.sessions())

    run(scenario, StoreWithABug(late=False), internal_errors=1)


def test_connections_above_the_limit_are_not_served() -> None:
    async def scenario(server: Server) -> None:
        await joined(server, "first")
        second = Peer(server)
        assert second.ended == "aborted"
        second.send_now(Connect("second"))
        await turn()
        assert second.writes == []
        assert server.core.counters.connections_refused == 1

    run(scenario, connections_max=1)


def test_a_server_that_stops_does_not_wait_for_clients_that_have_not_sent_connect() -> None:
    async def scenario(server: Server) -> None:
        silent, client = Peer(server), await joined(server, "c")
        begun_s = server.loop.time()
        await server.stop()
        assert server.loop.time() - begun_s < STOP_GRACE_S
        assert (silent.ended, client.ended) == ("closed", "closed")

    run(scenario)


def test_callbacks_run_when_the_turn_has_ended_and_the_output_is_written() -> None:
    async def scenario(server: Server) -> None:
        reader, writer = await joined(server, "r", "t"), await joined(server, "w")
        written: list[int] = []

        def broken() -> None:
            raise ZeroDivisionError

        def note() -> None:
            written.append(len(reader.writes))

        callbacks: list[Callable[[], None]] = [broken, note]
        server.end_of_turn.extend(callbacks)
        writer.send_now(Publish("t", b"x"))
        assert written == []
        await turn()
        assert written == [1]

    run(scenario, internal_errors=1)
