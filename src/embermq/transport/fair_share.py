"""How many bytes of one client are processed in one turn, and how much time all such clients have in it.

Owns: how the share of a connection adapts to the time that processing takes. 128 KiB may be a hundred messages
or 65,536 packets, and one packet may have thousands of receivers; so the share is judged by the CPU time that it took.
"""

from typing import Final

SHARE_BYTES: Final = 128 * 1024
"""The share of a client that nothing is known about."""
SHARE_BYTES_MIN: Final = 256
SHARE_BYTES_MAX: Final = 256 * 1024
QUICK_S: Final = 0.002
LONG_S: Final = 0.006
"""A share that took less than the first time is doubled; one that took more than the second is halved, or quartered."""

TURN_S: Final = 0.02
"""When shares have taken so much CPU time in a turn, the clients that have brought more wait for the next turns."""


def adapted_share(share_bytes: int, took_s: float, was_whole: bool) -> int:
    """The next share after one that was processed. `was_whole`: there was as much to process as it allowed."""
    if took_s > 4 * LONG_S:
        return max(SHARE_BYTES_MIN, share_bytes // 4)
    if took_s > LONG_S:
        return max(SHARE_BYTES_MIN, share_bytes // 2)
    if took_s < QUICK_S and was_whole:
        return min(SHARE_BYTES_MAX, 2 * share_bytes)
    return share_bytes
