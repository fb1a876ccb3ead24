"""Pauses: why a client is not read from. Each reason ends by itself, and reading goes on when none is left.

Owns: the reasons, as bits of a number, and the names that an operator is shown.
"""

from typing import Final

OPENING: Final = 1
"""Its CONNECT is not answered yet."""
DISK: Final = 2
"""Too much is pending: of all clients, or of answers to this one."""
UNREAD: Final = 4
"""It leaves the answers to what it sent unread."""
TURN: Final = 8
"""It has sent much in this turn, and other clients come next."""
FULL: Final = 16
"""It publishes to a client whose queue is full (`broker.queues.flow`)."""

RATE: Final = 32
"""It has sent more than its rate allows (`transport.bounds.meter`)."""

WAITING_MAX: Final = 10_000
"""How many answers to one client may be pending: a group's size counts records, and not every answer has one."""

# TURN is not shown: it lasts for one turn.
_NAMES: Final = {
    OPENING: "opening",
    DISK: "disk",
    UNREAD: "unread answers",
    FULL: "full queue of a receiver",
    RATE: "rate",
}


def pause_names(reasons: int) -> list[str]:
    """The reasons, in words."""
    return [name for reason, name in _NAMES.items() if reasons & reason]
