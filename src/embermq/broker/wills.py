"""Wills: what the server publishes when a client is gone (3.1.1 section 3.1.2.5).

Owns: every pending will and the moment at which it falls due, and the publishing of it.
Never: a socket, a clock. Time comes in as `now_ms`.
While a client is connected its will is `Session.will`. When the connection ends without DISCONNECT it is scheduled
here. 3.1.1 knows no delay, so a will falls due at once; MQTT 5 has one (3.1.3.2.2), and a client that is back before
it has passed cancels the will.
"""

from typing import TYPE_CHECKING, Final, final

from embermq.broker.access import Identity
from embermq.broker.counters import Counters
from embermq.protocol.packets import Publish, Will
from embermq.store.interface import StoreError

if TYPE_CHECKING:
    from embermq.broker.delivery import MessageDelivery


@final
class PendingWill:
    """A will that is to be published at `due_ms`, with the rights of the client that left it."""

    __slots__ = ("identity", "message", "due_ms")

    def __init__(self, identity: Identity, message: Publish, due_ms: int) -> None:
        self.identity: Final = identity
        self.message: Final = message
        self.due_ms: Final = due_ms


@final
class Wills:
    """The wills of the clients that are gone, by client identifier."""

    __slots__ = ("_delivery", "_counters", "_pending")

    def __init__(self, delivery: "MessageDelivery", counters: Counters) -> None:
        self._delivery: Final = delivery
        self._counters: Final = counters
        self._pending: dict[str, PendingWill] = {}

    def schedule(self, client_id: str, will: Will, identity: Identity, now_ms: int) -> None:
        """A client is gone without DISCONNECT: its will falls due after its delay."""
        message = Publish(will.topic_name, will.payload, will.qos, will.retain, False, 0, will.properties)
        pending = PendingWill(identity, message, now_ms + will.delay_s * 1000)
        if pending.due_ms <= now_ms:
            self._publish(pending)
        else:
            self._pending[client_id] = pending

    def cancel(self, client_id: str) -> None:
        """The client is back: what it left is not published."""
        self._pending.pop(client_id, None)

    def session_ended(self, client_id: str) -> None:
        """A session has ended: its will falls due now, whatever its delay (MQTT 5, 3.1.2.5)."""
        will = self._pending.pop(client_id, None)
        if will is not None:
            self._publish(will)

    def publish_due(self, now_ms: int) -> None:
        """Publish every will whose moment has come, in the order in which the clients left."""
        for client_id, will in list(self._pending.items()):
            if will.due_ms <= now_ms:
                del self._pending[client_id]
                self._publish(will)

    def next_deadline_ms(self) -> int | None:
        """When to call `publish_due` next; None while nothing is pending."""
        return min((will.due_ms for will in self._pending.values()), default=None)

    def _publish(self, will: PendingWill) -> None:
        try:
            self._delivery.take_sessionless(will.message, will.identity)
        except StoreError:
            # The client is gone and cannot keep the message for us: on a failing disk it is lost, and counted.
            self._counters.store_refusals += 1
