"""What a bridge receives, on the event loop."""

import asyncio
from collections.abc import Callable

import pytest

from embermq.bridge.facts import BridgeCounters
from embermq.bridge.inlet import Inlet
from embermq.bridge.marks import Marks
from embermq.bridge.plan import BridgePlan, Rule
from embermq.client.address import ServerAddress
from embermq.protocol.packets import Packet, Publish
from embermq.transport.server import Server
from support.transports import run, turn


def test_a_bug_ends_the_connection_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(inlet: Inlet, packet: Packet) -> Packet:
        raise RuntimeError("planted")

    async def scenario(server: Server) -> None:
        woken = asyncio.Event()
        plan = BridgePlan(name="b", address=ServerAddress("h", 1), incoming=(Rule("#", "", "", 2),))

        def call(function: Callable[[], None]) -> None:
            server.loop.call_soon(function)

        inlet = Inlet(server, plan, Marks("0123"), BridgeCounters(), call, woken.set)

        async def take(message: Publish) -> None:
            inlet.connected(False)
            inlet.take([message])
            async with asyncio.timeout(60):
                while inlet.is_busy and not inlet.problem:
                    woken.clear()
                    await woken.wait()
            inlet.disconnected("the end")
            await turn()

        with monkeypatch.context() as patch:
            patch.setattr(Inlet, "_with_expiry", planted)
            await take(Publish("x/1", b""))
        assert inlet.problem == "internal error of this server"
        await take(Publish("x/2", b""))
        assert not inlet.problem

    run(scenario, internal_errors=1)
