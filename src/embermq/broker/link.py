"""A link: a client's connection as the core sees it.

Owns: the calls from the core to a transport. The calls from a transport to the core are the methods of `Core`.
A link does not write to its socket while the core runs: it gathers bytes, and the shell writes them once a turn.
"""

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from embermq.protocol.packets import Acknowledgement, Delivery, Packet
from embermq.protocol.reasons import ReasonCode


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(ABC):
    """One client's connection, or a reader of messages without a client.

    `waiting`: how many answers to the client wait for a commit. A shell reads no more of a client with too many.
    `supervises_keep_alive`: the transport itself decides when the client has been silent for too long.
    `can_be_held_back`: the transport can stop reading from this one client (`hold_back`).
    `maximum_packet_size`: the largest packet that the client takes (MQTT 5), set by the core; 0: any.
    """

    __slots__ = ("waiting", "supervises_keep_alive", "can_be_held_back", "maximum_packet_size")

    def __init__(self, supervises_keep_alive: bool = False, can_be_held_back: bool = True) -> None:
        self.waiting = 0
        self.supervises_keep_alive: Final = supervises_keep_alive
        self.can_be_held_back: Final = can_be_held_back
        self.maximum_packet_size = 0

    def change_waiting(self, count: int) -> None:
        """More answers to the client wait for a commit; with a count below 0 they have been released."""
        self.waiting += count

    def detach(self) -> None:
        """Its session has another connection from now on, or none."""
        return

    @abstractmethod
    def deliver(self, delivery: Delivery) -> int:
        """Send the messages of a run, the first ones if there is no room for all; how many were taken.

        At QoS 0 the others are dropped: the client reads too slowly. At QoS 1 and 2 the core asks `has_room` before,
        and if the client has a maximum packet size also `fits`; then at least the first one is taken.
        """

    def fits(self, delivery: Delivery) -> bool:
        """Whether a lone message is not larger than the client takes; asked if it has a `maximum_packet_size`.

        One that is too large counts as delivered (5.0, MQTT-3.1.2-25); at QoS 0 the link itself leaves it out.
        """
        return True

    @abstractmethod
    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP, one or several."""

    def has_properties(self) -> bool:
        """Whether packets to the client can have properties (5.0, 2.2.2): of a message, an assigned client id."""
        return False

    def is_of_server(self) -> bool:
        """Whether it is a bridge of this server, and may have a client id that no client can have."""
        return False

    def tells_reasons(self) -> bool:
        """Whether an acknowledgement can tell the client that a message was refused: not in MQTT 3.1 and 3.1.1."""
        return True

    @abstractmethod
    def send(self, packet: Packet) -> None:
        """Send any other packet."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether QoS 1 and 2 messages may be handed over now. After False, the shell calls `writable` later."""

    def listener_name(self) -> str:
        """The listener that the client has connected to; empty if the link has no client."""
        return ""

    def retained_rate_max(self) -> int:
        """How many retained messages the client gets in a second; 0: as many as it reads."""
        return 0

    def slowed_by(self) -> list[str]:
        """Why the client is served more slowly than it could be, for the operator; empty if nothing slows it."""
        return []

    def unread_bytes(self) -> int:
        """How much was sent that the client has not read, as far as the transport knows."""
        return 0

    def own_unread_bytes(self) -> int:
        """The part of `unread_bytes` that is in memory for this client alone, and not counted elsewhere."""
        return 0

    def throttle(self, is_throttled: bool) -> None:
        """All clients together leave too much unread, and this one most of it: keep little for it, until False."""
        return

    @abstractmethod
    def hold_back(self, is_held: bool) -> None:
        """Stop reading from the client, or go on. Called only if `can_be_held_back`."""

    @abstractmethod
    def opened(self) -> None:
        """CONNACK has been sent: packets that came after CONNECT may be handed to the core now."""

    @abstractmethod
    def close(self, reason: ReasonCode, detail: str) -> None:
        """End the connection after what was sent so far. The core has no reference to it any more."""
