"""Subscriptions at QoS 0 without a client, for readers of the HTTP interface."""

from typing import Final, final

from embermq.broker.access import OPERATOR
from embermq.broker.link import Link
from embermq.broker.queues.outbound import Outbound
from embermq.broker.session import Session
from embermq.http.service import Service
from embermq.protocol.packets import Delivery, Packet, SubscriptionRequest
from embermq.protocol.reasons import ReasonCode


class ReadingLink(Link):
    """A link that takes messages and nothing else; a class for one purpose says in `forward` what becomes of them."""

    def __init__(self) -> None:
        super().__init__(can_be_held_back=False)

    def deliver(self, delivery: Delivery) -> bool:
        return self.forward(delivery.message)

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
