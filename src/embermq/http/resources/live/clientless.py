"""Subscriptions at QoS 0 without a client, for readers of the HTTP interface."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, final

from embermq.broker.access import OPERATOR
from embermq.broker.link import Link
from embermq.broker.queues.outbound import Outbound
from embermq.broker.session import Session
from embermq.http.service import Service
from embermq.protocol.packets import Delivery, Packet, Publish, SubscriptionRequest
from embermq.protocol.reasons import ReasonCode


class ReadingLink(Link):
    """A link that takes messages and nothing else; a class for one purpose says in `gather` what becomes of them."""

    def __init__(self) -> None:
        super().__init__(can_be_held_back=False)
        self._may_read: Callable[[str], bool] | None = None

    def narrow(self, may_read: Callable[[str], bool]) -> None:
        """Take only messages of topics that may be read when they come."""
        self._may_read = may_read

    @abstractmethod
    def gather(self, message: Publish) -> None:
        """Take a message that may be read."""

    def deliver(self, delivery: Delivery) -> bool:
        return self.forward(delivery.message)

    @final
    def forward(self, message: Publish) -> bool:
        if self._may_read is None or self._may_read(message.topic_name):
            self.gather(message)
        return True  # what a reader does not get is no drop of the broker

    def acknowledge(self, packet_type: int, packet_id: int, reason: int) -> None:
        return

    def send(self, packet: Packet) -> None:
        return

    def has_room(self) -> bool:
        return True

    def hold_back(self, is_held: bool) -> None:
        return

    def opened(self) -> None:
        return

    def close(self, reason: ReasonCode, detail: str) -> None:
        return


@final
class ClientlessSubscription:
    """One subscription, with the rights of the operator, between `begin` and `end`."""

    def __init__(self, service: Service, topic_filter: str, link: Link) -> None:
        self._core: Final = service.server.core
        self._request: Final = SubscriptionRequest(topic_filter, 0)
        self._session: Final = Session("$tail", 0, OPERATOR, Outbound(None, 1, 1, self._core.counters))
        self._session.link = link

    def begin(self) -> None:
        self._core.subscriptions.add(self._session, self._request)

    def end(self) -> None:
        self._core.subscriptions.remove_all(self._session)
        self._session.has_ended = True
