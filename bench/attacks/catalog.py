"""All attacks by name."""

import time
from typing import Final

from bench.attacks import connections, small_packets, subscriptions, tls, websockets
from bench.attacks.clients import Attack, Target


def nothing(target: Target, until_s: float) -> None:
    """No attack: what the pair sees on this machine anyway."""
    time.sleep(max(0.0, until_s - time.monotonic()))


ATTACKS: Final[dict[str, Attack]] = {
    "nothing": Attack(nothing),
    **subscriptions.ATTACKS,
    **small_packets.ATTACKS,
    **connections.ATTACKS,
    **tls.ATTACKS,
    **websockets.ATTACKS,
}
