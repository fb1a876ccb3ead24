"""The window: how many messages are in flight to one client, and how that adapts to how fast it acknowledges.

Owns: the rule. `Outbound` keeps the window of a session, and what is in flight.
At most it is the client's Receive Maximum or the server's limit, whichever is less. It begins with fewer, so that of a
slow client not much is in memory. A full window that is acknowledged quickly is doubled, one that takes long is halved.
"""

from typing import Final

WINDOW_START: Final = 500
"""How many messages are in flight at most until the client has shown that it acknowledges quickly."""
WINDOW_QUICK_US: Final = 100_000
WINDOW_LONG_US: Final = 1_000_000
"""A full window that is acknowledged within the first time is doubled; one that takes the second time is halved."""


def first_window(window_max: int) -> int:
    """The window of a client that has just connected."""
    return min(window_max, WINDOW_START)


def adapted_window(window: int, window_max: int, took_us: int) -> int:
    """The next window of a client that has acknowledged a full one in this time."""
    if took_us <= WINDOW_QUICK_US:
        return min(2 * window, window_max)
    if took_us > WINDOW_LONG_US:
        return max(window // 2, first_window(window_max))
    return window
