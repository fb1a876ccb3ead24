"""All attacks by name."""

import time
from typing import Final

from bench.attacks import connections, http, memory, queues, small_packets, sn, subscriptions, tls, websockets
from bench.attacks.clients import Attack, Target
from bench.machine import raise_open_files


def nothing(target: Target, until_s: float) -> None:
    """No attack: what the pair sees on this machine anyway."""
    time.sleep(max(0.0, until_s - time.monotonic()))


ATTACKS: Final[dict[str, Attack]] = {
    "nothing": Attack(nothing),
    **subscriptions.ATTACKS,
    **queues.ATTACKS,
    **small_packets.ATTACKS,
    **connections.ATTACKS,
    **tls.ATTACKS,
    **websockets.ATTACKS,
    **http.ATTACKS,
    **sn.ATTACKS,
    **memory.ATTACKS,
}


def run_attack(name: str, target: Target, seconds: float) -> None:
    """In a process of its own, which imports this module and not `__main__`."""
    raise_open_files()
    ATTACKS[name].run(target, time.monotonic() + seconds)
