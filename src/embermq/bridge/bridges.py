"""All bridges of a server.

Owns: which bridges run, by the settings of now; what is read of them for operators.
Never: a bridge's connection, or what another one does.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from embermq.bridge.facts import BridgeFacts
from embermq.bridge.host import Host
from embermq.bridge.plan import BridgePlan
from embermq.bridge.position import forget_positions
from embermq.transport.server import Server

if TYPE_CHECKING:
    from embermq.bridge.bridge import Bridge

logger: Final = logging.getLogger("embermq.bridge")


@final
class Bridges:
    """The bridges of one server, on its event loop."""

    def __init__(self, server: Server, data: Path, call: Callable[[Callable[[], None]], None]) -> None:
        self._host: Final = Host(server, data, call)
        self._server: Final = server
        self._bridges: Final[dict[str, Bridge]] = {}
        self._ending: Final[dict[str, asyncio.Future[None]]] = {}  # bridges that were removed or changed
        self._plans: dict[str, BridgePlan] = {}
        self._is_closing = False
        server.end_of_turn.append(self._turn_ended)
        server.core.add_counts(self._counts)
        server.before_stop.append(self.close)

    def apply(self, plans: Sequence[BridgePlan]) -> list[str]:
        """Start bridges that are new, end those that are gone, change those that differ, and touch no other.

        Returns the names of all three.
        """
        wanted = {plan.name: plan for plan in plans}
        old = self._plans
        changed = [name for name in {**old, **wanted} if old.get(name) != wanted.get(name)]
        self._plans = wanted
        for name in changed:
            bridge = self._bridges.pop(name, None)
            if bridge is not None:
                self._end(bridge, name not in wanted)
        for name in forget_positions(self._host.data, {*wanted, *self._ending}):
            self._forget_session(name)
        for name in changed:
            self._start(name)
        return changed

    def facts(self) -> list[BridgeFacts]:
        return [bridge.facts() for bridge in self._bridges.values()]

    async def close(self) -> None:
        """End all, with their positions written."""
        self._is_closing = True
        bridges = list(self._bridges.values())
        for bridge in bridges:
            bridge.stop()
        loop = self._server.loop
        await asyncio.gather(*(loop.run_in_executor(None, bridge.leave) for bridge in bridges))

    def _start(self, name: str) -> None:
        plan = self._plans.get(name)
        if plan is None or name in self._ending or self._is_closing:
            return
        from embermq.bridge.bridge import Bridge  # 1 MiB, which a server without bridges does not need

        bridge = self._bridges[name] = Bridge(plan, self._host)
        bridge.start()

    def _end(self, bridge: "Bridge", is_removed: bool) -> None:
        bridge.stop(is_removed)
        ended = self._server.loop.run_in_executor(None, bridge.join)
        self._ending[bridge.plan.name] = ended
        ended.add_done_callback(lambda _: self._ended(bridge.plan.name))

    def _ended(self, name: str) -> None:
        del self._ending[name]
        if name in self._plans:
            self._start(name)
        elif not self._is_closing:
            forget_positions(self._host.data, {*self._plans, *self._ending})
            self._forget_session(name)

    def _forget_session(self, name: str) -> None:
        """The session in our core of a bridge that is no longer in the settings."""
        core = self._server.core
        session = core.session(BridgePlan.client_id_of(name))
        if session is not None:
            self._server.begin_turn()
            core.end_session(session)
        logger.info("bridge %s: it is not in the settings any more, so its position is forgotten", name)

    def _turn_ended(self) -> None:
        if not self._bridges:
            return
        next_offset = self._server.store.next_offset()
        for bridge in self._bridges.values():
            bridge.turn_ended(next_offset)

    def _counts(self) -> dict[str, int]:
        return {
            f"bridges/{facts.name}/{name}": count for facts in self.facts() for name, count in facts.counts().items()
        }
