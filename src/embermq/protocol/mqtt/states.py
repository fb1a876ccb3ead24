"""The states of one MQTT connection, and what leads from one to another, as a table."""

from typing import Final

AWAITING_CONNECT: Final = 0
"""Nothing has come but, perhaps, the beginning of a CONNECT."""
AUTHENTICATING: Final = 1
"""CONNECT has come, and its sender is being checked. MQTT 5's AUTH packets are exchanged here."""
OPENING: Final = 2
"""The client is who it says; the core has not sent CONNACK yet."""
OPEN: Final = 3
"""CONNACK has been sent: packets go to the core as they come."""
CLOSING: Final = 4
"""The end is decided: nothing is read any more, and what was gathered is sent before the end."""
CLOSED: Final = 5
"""Nothing is read and nothing is sent."""

CONNECT_RECEIVED: Final = "CONNECT received"
ACCEPTED: Final = "accepted"
CONNACK_SENT: Final = "CONNACK sent"
END_DECIDED: Final = "end decided"
LAST_SENT: Final = "last output sent"
CONNECTION_LOST: Final = "connection lost"

TRANSITIONS: Final[dict[tuple[int, str], int]] = {
    (AWAITING_CONNECT, CONNECT_RECEIVED): AUTHENTICATING,
    (AUTHENTICATING, ACCEPTED): OPENING,
    (OPENING, CONNACK_SENT): OPEN,
    (AWAITING_CONNECT, END_DECIDED): CLOSING,  # no CONNECT in time, another packet than CONNECT, bad bytes
    (AUTHENTICATING, END_DECIDED): CLOSING,  # refused, with CONNACK; or not answered in time
    (OPENING, END_DECIDED): CLOSING,
    (OPEN, END_DECIDED): CLOSING,
    (CLOSING, LAST_SENT): CLOSED,
    (AWAITING_CONNECT, CONNECTION_LOST): CLOSED,
    (AUTHENTICATING, CONNECTION_LOST): CLOSED,
    (OPENING, CONNECTION_LOST): CLOSED,
    (OPEN, CONNECTION_LOST): CLOSED,
    (CLOSING, CONNECTION_LOST): CLOSED,
    (CLOSED, CONNECTION_LOST): CLOSED,
}
"""What is not listed cannot happen: a KeyError is a bug of ours."""
