"""Clients that connect and send no CONNECT: each is ended when its own time is over."""

import asyncio

from embermq.protocol.packets import Connack, Connect
from embermq.transport.server import Server
from support.transports import Peer, joined, run, turn


def test_connections_that_are_not_opened_in_time_end_and_the_others_stay() -> None:
    async def scenario(server: Server) -> None:
        silent = [Peer(server) for _ in range(3)]
        opened = await joined(server, "opened")
        gone = Peer(server)
        gone.connection.connection_lost(None)
        await asyncio.sleep(0.6)
        late = Peer(server)
        async with asyncio.timeout(10):
            while not all(peer.ended for peer in silent):
                await asyncio.sleep(0.01)
        assert (opened.ended, gone.ended, late.ended) == ("", "", "")
        await late.send(Connect("late"))
        assert late.packets() == [Connack(False, 0)]
        async with asyncio.timeout(10):  # the timer that was set for the last one ends nothing
            while server.unopened._timer.is_set():
                await asyncio.sleep(0.01)
        assert late.ended == ""
        next_one = Peer(server)
        async with asyncio.timeout(10):
            while not next_one.ended:
                await asyncio.sleep(0.01)
        await turn()

    run(scenario, connect_timeout_s=1)
