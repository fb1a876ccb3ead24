"""A link: a client's connection as the core sees it.

Owns: the calls from the core to a transport. The calls from a transport to the core are the methods of `Core`.
A link does not write to its socket while the core runs: it gathers bytes, and the shell writes them once a turn.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from embermq.protocol.packets import Delivery, Packet, Publish
from embermq.protocol.reasons import ReasonCode

if TYPE_CHECKING:
    from embermq.broker.session import Session


@mypyc_attr(allow_interpreted_subclasses=True)
class Link(ABC):
    """One client's connection. `session` is set by the core between CONNECT and the end.

    `waiting`: how many answers to the client wait for a commit. A shell reads no more of a client with too many.
    `supervises_keep_alive`: the transport itself decides when the client has been silent for too long.
    `can_be_held_back`: the transport can stop reading from this one client (`hold_back`).
    `maximum_packet_size`: the largest packet that the client takes (MQTT 5), set by the core; 0: any.
    """

    __slots__ = ("session", "waiting", "supervises_keep_alive", "can_be_held_back", "maximum_packet_size")

    def __init__(self, supervises_keep_alive: bool = False, can_be_held_back: bool = True) -> None:
        self.session: Session | None = None
        self.waiting = 0
        self.supervises_keep_alive: Final = supervises_keep_alive
        self.can_be_held_back: Final = can_be_held_back
        self.maximum_packet_size = 0

    @abstractmethod
    def deliver(self, delivery: Delivery) -> bool:
        """Send a message. False: it was dropped, and the client will not acknowledge it.

        At QoS 0 that is because the client reads too slowly. At QoS 1 and 2 it is because the packet would be larger
        than the client's Maximum Packet Size (5.0, 3.1.2.11.4); at QoS 0 such a message counts as sent. The link
        counts it as too large.
        """

    def deliver_all(self, deliveries: list[Delivery]) -> int:
        """Shortcut for `deliver` of the first ones, at QoS 1 or 2, each if `has_room`; how many were sent.

        It may end anywhere, also before the first: then the next one is for `deliver`, if there is room.
        """
        return 0

    @abstractmethod
    def forward(self, message: Publish) -> bool:
        """Shortcut for `deliver(Delivery(message))`: QoS 0, no RETAIN, no identifiers."""

    def deliver_run(self, messages: list[Publish], qos: int, packet_id: int, ids: tuple[int, ...]) -> bool:
        """Shortcut for `deliver` of each at QoS 1 or 2, without RETAIN and DUP, if there is room for all of them.

        Their packet identifiers count up from `packet_id`; none of them expires. False: `deliver` each of them.
        """
        return False

    def deliver_retained(self, topics: list[bytes], payloads: list[bytes], qos: int, packet_id: int) -> bool:
        """Shortcut for `deliver` of each with RETAIN, without properties and identifiers of subscriptions.

        At QoS 1 and 2 as `deliver_run`. False: `deliver` each of them.
        """
        return False

    def fits(self, delivery: Delivery) -> bool:
        """Whether a message is not larger than the client takes; asked if it has a `maximum_packet_size`."""
        return True

    @abstractmethod
    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""

    def acknowledge_all(self, packet_type: int, packet_ids: list[int] | range, reason: int = 0) -> None:
        """Shortcut for `acknowledge` of each."""
        for packet_id in packet_ids:
            self.acknowledge(packet_type, packet_id, reason)

    @abstractmethod
    def send(self, packet: Packet) -> None:
        """Send any other packet."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether QoS 1 and 2 messages may be handed over now. After False, the shell calls `writable` later."""

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
