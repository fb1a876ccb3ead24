"""Clients that connect and send no CONNECT: each is ended when its own time is over."""

import asyncio
import time
from collections.abc import Callable

from embermq.protocol.packets import Connack, Connect
from embermq.transport.server import Server
from support.transports import Peer, joined, run, turn


def test_connections_that_are_not_opened_in_time_end_and_the_others_stay() -> None:
    async def scenario(server: Server) -> None:
        silent = [Peer(server) for _ in range(3)]
        opened = await joined(server, "opened")
        gone = Peer(server)
        gone.connection.connection_lost(None)
        late = Peer(server)
        pass_time(server, *silent)
        await until(lambda: all(peer.ended for peer in silent))
        assert (opened.ended, gone.ended, late.ended) == ("", "", "")
        await late.send(Connect("late"))
        assert late.packets() == [Connack(False, 0)]
        pass_time(server)  # the timer that was set for the last one ends nothing
        await until(lambda: not server.unopened._timer.is_set())
        assert late.ended == ""
        next_one = Peer(server)
        assert server.unopened._timer.is_set()
        pass_time(server, next_one)
        await until(lambda: bool(next_one.ended))
        await turn()

    run(scenario, connect_timeout_s=600)


def pass_time(server: Server, *peers: Peer) -> None:
    """As if the time of these were over, and the one timer due."""
    for peer in peers:
        server.unopened._due_s[peer.connection] = time.monotonic()
    server.unopened._timer.set(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
