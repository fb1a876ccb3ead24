"""Subscriptions at QoS 0 without a client: for readers of the HTTP interface, and for tests with an embedded broker."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from embermq.broker.core import Core
from embermq.broker.link import Link
from embermq.broker.session import Session
from embermq.protocol.packets import Acknowledgement, Delivery, Packet, Publish
from embermq.protocol.reasons import ReasonCode


@mypyc_attr(allow_interpreted_subclasses=True)
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

    @final
    def deliver(self, delivery: Delivery) -> int:
        for message in delivery.unpacked():
            if self._may_read is None or self._may_read(message.topic_name):
                self.gather(message)
        return len(delivery)  # the broker does not count what this reader misses as dropped

    def acknowledge(self, acknowledgement: Acknowledgement) -> None:
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

    def __init__(self, core: Core, topic_filter: str, link: Link) -> None:
        self._core: Final = core
        self._topic_filter: Final = topic_filter
        self._link: Final = link
        self._session: Session | None = None

    def begin(self) -> None:
        self._session = self._core.add_reader(self._link, self._topic_filter)

    def end(self) -> None:
        if self._session is not None:
            self._core.remove_reader(self._session)
