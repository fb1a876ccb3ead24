"""The rates of one client: it is slowed down and loses nothing."""

import asyncio

import pytest

from embermq.protocol.packets import Publish
from embermq.transport.server import Server
from support.acknowledgements import puback
from support.transports import joined, run, turn


@pytest.mark.parametrize(("publish_rate", "bytes_rate"), [(300, 0), (0, 4_000)])
def test_a_client_above_its_rate_is_not_read_from_and_loses_nothing(publish_rate: int, bytes_rate: int) -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        writer, other = await joined(server, "w"), await joined(server, "o")
        await asyncio.sleep(0.05)  # what CONNECT took of the rate is given back
        messages = [Publish("t", b"%06d" % number, 1, packet_id=1) for number in range(400)]
        writer.send_now(*messages)
        assert not writer.is_read_from
        assert writer.connection.slowed_by() == ["rate"]
        assert other.is_read_from
        assert server.core.counters.clients_slowed_by_rate == 1
        while not writer.is_read_from:
            await asyncio.sleep(0.01)
        await turn()
        assert reader.payloads() == [message.payload for message in messages]
        assert writer.packets() == [puback(1)] * len(messages)

    run(scenario, client_publish_rate_max=publish_rate, client_bytes_rate_max=bytes_rate)


def test_a_client_that_waits_for_its_rate_counts_as_heard() -> None:
    async def scenario(server: Server) -> None:
        writer = await joined(server, "w")
        writer.send_now(*[Publish("t", b"")] * 120)
        session = server.core.sessions()[0]
        session.heard_ms = 0
        while not writer.is_read_from:
            await asyncio.sleep(0.01)
        assert session.heard_ms > 0

    run(scenario, client_publish_rate_max=100)


def test_a_client_that_goes_while_it_waits_for_its_rate_leaves_nothing() -> None:
    async def scenario(server: Server) -> None:
        reader = await joined(server, "r", "t")
        writer = await joined(server, "w")
        messages = [Publish("t", b"%06d" % number) for number in range(1_000)]  # more than one share
        writer.send_now(*messages)
        assert not writer.is_read_from
        writer.connection.connection_lost(None)
        while len(server.core.sessions()) == 2:
            await asyncio.sleep(0.01)
        await turn()
        assert reader.payloads() == [message.payload for message in messages]

    run(scenario, client_publish_rate_max=1)  # at this rate it would take a quarter of an hour
