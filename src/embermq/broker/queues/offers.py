"""Effects of messages that were added to one session's queue: they are offered to it when they are durable."""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.effects import Effect
from embermq.protocol.packets import Publish

if TYPE_CHECKING:
    from embermq.broker.core import Core
    from embermq.broker.session import Session


@final
class OfferEffect(Effect):
    """A message that was added to a persistent session's queue."""

    __slots__ = ("_to", "_message", "_qos", "_retain", "_ids")

    def __init__(self, session: "Session", message: Publish, qos: int, retain: bool, ids: tuple[int, ...]) -> None:
        self.session = None
        self.link = None
        self.weight = 1
        self._to: Final = session
        self._message: Final = message
        self._qos: Final = qos
        self._retain: Final = retain
        self._ids: Final = ids

    def release(self, core: "Core") -> None:
        if not self._to.has_ended:
            core.delivery.offer(self._to, self._message, self._qos, self._retain, self._ids)


@final
class SharedOfferEffect(Effect):
    """A QoS 2 message of a share group that was handed over to one member."""

    __slots__ = ("_to", "_message", "_retain", "_ids")

    def __init__(self, session: "Session", message: Publish, retain: bool, ids: tuple[int, ...]) -> None:
        self.session = None
        self.link = None
        self.weight = 1
        self._to: Final = session
        self._message: Final = message
        self._retain: Final = retain
        self._ids: Final = ids

    def release(self, core: "Core") -> None:
        self._to.outbound.promised -= 1
        if not self._to.has_ended:
            core.delivery.offer(self._to, self._message, 2, self._retain, self._ids)
