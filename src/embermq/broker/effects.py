"""Held effects: what a packet causes, kept back until the commit group it belongs to is durable (decision 3).

Owns: one small class per effect, released in the order in which the packets came.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

from embermq.broker.link import Link
from embermq.broker.subscriptions import Subscription
from embermq.protocol.packets import PUBACK, PUBREC, Connack, Packet, Publish, Suback
from embermq.protocol.topics import matches

if TYPE_CHECKING:
    from embermq.broker.core import Core
    from embermq.broker.publishing import Publishing
    from embermq.broker.session import Session


class Held(ABC):
    """One effect that waits."""

    __slots__ = ()

    @abstractmethod
    def release(self, core: "Core", publishing: "Publishing") -> None:
        """The group is durable: let it happen."""


@final
class HeldPublish(Held):
    """The deliveries of a message, and its acknowledgement to the publisher."""

    __slots__ = ("offset", "_message", "_subscriptions", "_publisher", "_link")

    def __init__(
        self,
        message: Publish,
        offset: int,
        subscriptions: list[Subscription],
        publisher: "Session | None",
        link: Link | None,
    ) -> None:
        self.offset: Final = offset
        self._message: Final = message
        self._subscriptions = subscriptions
        self._publisher: Final = publisher
        self._link: Final = link
        if link is not None:
            link.waiting += 1

    def include(self, subscription: Subscription) -> None:
        """A subscription made while this waits gets it live if it will be retained: the store cannot show it yet."""
        message = self._message
        wanted = message.retain and message.payload and matches(subscription.topic_filter, message.topic_name)
        # One that replaces another of the same session is in the route already.
        if wanted and all(present.session is not subscription.session for present in self._subscriptions):
            self._subscriptions = [*self._subscriptions, subscription]

    def release(self, core: "Core", publishing: "Publishing") -> None:
        message = self._message
        if self._subscriptions:
            publishing.fan_out(message, self._subscriptions, self._publisher)
        if message.retain:
            publishing.streams.settled(message)
        publisher = self._publisher
        if publisher is not None:
            publisher.held -= 1
        link = self._link
        if link is not None:
            link.waiting -= 1
            if message.qos:
                link.acknowledge(PUBACK if message.qos == 1 else PUBREC, message.packet_id, 0)


@final
class HeldAcknowledgement(Held):
    """PUBACK, PUBREC, PUBREL or PUBCOMP that promises something the group records."""

    __slots__ = ("_link", "_packet_type", "_packet_id", "_reason")

    def __init__(self, link: Link, packet_type: int, packet_id: int, reason: int = 0) -> None:
        self._link: Final = link
        self._packet_type: Final = packet_type
        self._packet_id: Final = packet_id
        self._reason: Final = reason
        link.waiting += 1

    def release(self, core: "Core", publishing: "Publishing") -> None:
        self._link.waiting -= 1
        self._link.acknowledge(self._packet_type, self._packet_id, self._reason)


@final
class HeldPacket(Held):
    """SUBACK, UNSUBACK, or what must not overtake them; after SUBACK, retained messages begin to flow."""

    __slots__ = ("_link", "_packet", "_session")

    def __init__(self, link: Link, packet: Packet, session: "Session") -> None:
        self._link: Final = link
        self._packet: Final = packet
        self._session: Final = session
        session.held += 1
        link.waiting += 1

    def release(self, core: "Core", publishing: "Publishing") -> None:
        self._session.held -= 1
        self._link.waiting -= 1
        self._link.send(self._packet)
        if isinstance(self._packet, Suback):
            core.stream_retained(self._session)


@final
class HeldOffer(Held):
    """A retained message that was added to a lasting queue."""

    __slots__ = ("_session", "_message", "_qos")

    def __init__(self, session: "Session", message: Publish, qos: int) -> None:
        self._session: Final = session
        self._message: Final = message
        self._qos: Final = qos

    def release(self, core: "Core", publishing: "Publishing") -> None:
        session = self._session
        if not session.ended:
            session.outbound.offer(session.link, self._message, self._qos, True)


@final
class HeldConnack(Held):
    """The connection's opening: CONNACK, then redelivery, then what the client has sent meanwhile."""

    __slots__ = ("_session", "_link", "_packet")

    def __init__(self, session: "Session", link: Link, packet: Connack) -> None:
        self._session: Final = session
        self._link: Final = link
        self._packet: Final = packet

    def release(self, core: "Core", publishing: "Publishing") -> None:
        core.open(self._session, self._link, self._packet)


@final
class HeldAnswer(Held):
    """The answer to somebody who is no client: what was appended before it is durable."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Callable[[], None]) -> None:
        self._answer: Final = answer

    def release(self, core: "Core", publishing: "Publishing") -> None:
        self._answer()
