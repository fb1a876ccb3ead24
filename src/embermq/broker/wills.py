"""Wills: what the server publishes when a client is gone (3.1.1 section 3.1.2.5; 5.0 sections 3.1.2.5 and 3.1.3.2).

Owns: the records of wills, every pending will with the moment at which it falls due, and the publishing of it.
While a client is connected its will is `Session.will`. When the connection ends without DISCONNECT 0x00 it is scheduled
here: it falls due after its delay, and no later than its session ends. A client that is back before cancels it.

A will is in the store from before CONNACK until it is published or deleted, so a crash of the server loses none. The
record that it is gone is in the same commit group as its PUBLISH: after a crash it is published once. Clients cannot
come back while the server is down, so after a start every will waits for at least a grace period.
"""

from typing import Final, final

from embermq.broker.access import Identity
from embermq.broker.context import Context
from embermq.broker.deadlines import Deadlines
from embermq.broker.delivery import MessageDelivery
from embermq.protocol.message_expiry import message_expires_us
from embermq.protocol.packets import Publish, Will
from embermq.store.interface import StoreError
from embermq.store.records import WillCleared, WillSet

WILLS_A_TICK: Final = 1_000
"""How many wills one tick publishes: after a crash those of all clients may fall due at the same moment."""
RETRY_MS: Final = 1_000
"""After how long a will is tried again that a failing store did not take."""


@final
class PendingWill:
    """A will that is to be published at `due_ms`, with the rights of the client that left it."""

    __slots__ = ("client_id", "identity", "will", "due_ms", "has_failed")

    def __init__(self, client_id: str, identity: Identity, will: Will, due_ms: int, has_failed: bool) -> None:
        self.client_id: Final = client_id
        self.identity: Final = identity
        self.will: Final = will
        self.due_ms: Final = due_ms
        self.has_failed: Final = has_failed  # it was due, and the store did not take it


def _due_ms(pending: PendingWill) -> int:
    return pending.due_ms


@final
class Wills:
    """The wills of all clients: their records, and those of the clients that are gone by client identifier."""

    def __init__(self, context: Context, delivery: MessageDelivery) -> None:
        self._store: Final = context.store
        self._delivery: Final = delivery
        self._counters: Final = context.counters
        self._clock: Final = context.clock
        self._pending: Final[dict[str, PendingWill]] = {}
        self._deadlines: Final[Deadlines[PendingWill]] = Deadlines(_due_ms)

    # -- while the client is connected -----------------------------------------------------------------------------

    def set(self, client_id: str, session_id: int, user_name: str, before: Will | None, will: Will | None) -> None:
        """A client has connected with this will or none, or has changed it; the will `before` is deleted."""
        was_pending = self._take(client_id) is not None
        if will is not None:
            self._store.append(WillSet(client_id, session_id, user_name, will))
        elif before is not None or was_pending:
            self._store.append(WillCleared(client_id))

    def delete(self, client_id: str) -> None:
        """The client has sent DISCONNECT 0x00: its will is not published (MQTT-3.14.4-3)."""
        self._store.append(WillCleared(client_id))

    # -- when it is gone -------------------------------------------------------------------------------------------

    def schedule(self, client_id: str, will: Will, identity: Identity) -> None:
        """A client is gone without DISCONNECT 0x00: its will falls due after its delay."""
        if will.delay_s == 0:
            self._publish(client_id, will, identity)
        else:
            self._wait(client_id, will, identity, self._clock.now_ms + will.delay_s * 1000)

    def restore(self, grace_ms: int) -> None:
        """At start: the wills of clients that were connected when the server stopped, or whose delay was running."""
        now_ms, wall_us = self._clock.now_ms, self._clock.now_us()
        for saved in self._store.sessions.wills():
            away_ms = max(0, wall_us - saved.ended_us) // 1000 if saved.ended_us else 0
            due_ms = max(now_ms + grace_ms, now_ms - away_ms + saved.will.delay_s * 1000)
            self._wait(saved.client_id, saved.will, Identity(saved.user_name, saved.client_id), due_ms)

    def session_ended(self, client_id: str) -> None:
        """A session has ended: its will falls due now, whatever its delay (5.0, MQTT-3.1.2-8)."""
        pending = self._pending.get(client_id)
        if pending is not None and not pending.has_failed:
            self._take(client_id)
            self._publish(client_id, pending.will, pending.identity)

    def publish_due(self) -> None:
        """Publish the wills whose moment has come, in the order of these moments."""
        for pending in self._deadlines.expired(self._clock.now_ms, WILLS_A_TICK):
            del self._pending[pending.client_id]
            self._publish(pending.client_id, pending.will, pending.identity)

    def pending_count(self) -> int:
        """How many wills of clients that are gone have not fallen due."""
        return len(self._pending)

    def next_deadline_ms(self) -> int | None:
        """When to call `publish_due` next; None while nothing is pending."""
        return self._deadlines.next_ms()

    def _wait(self, client_id: str, will: Will, identity: Identity, due_ms: int, *, has_failed: bool = False) -> None:
        self._take(client_id)
        pending = self._pending[client_id] = PendingWill(client_id, identity, will, due_ms, has_failed)
        self._deadlines.watch(pending)

    def _take(self, client_id: str) -> PendingWill | None:
        """The pending will of a client, which is pending no longer."""
        pending = self._pending.pop(client_id, None)
        if pending is not None:
            self._deadlines.forget(pending)
        return pending

    def _publish(self, client_id: str, will: Will, identity: Identity) -> None:
        properties = will.properties
        expires_us = message_expires_us(properties, self._clock.now_us()) if properties else 0
        message = Publish(will.topic_name, will.payload, will.qos, will.retain, False, 0, properties, expires_us)
        try:
            self._delivery.take_sessionless(message, identity, must_be_durable=True)
        except StoreError:
            # Nothing was recorded: the will is still in the store, and is published when the store works again.
            self._counters.store_refusals += 1
            self._wait(client_id, will, identity, self._clock.now_ms + RETRY_MS, has_failed=True)
        else:
            self._store.append(WillCleared(client_id))
