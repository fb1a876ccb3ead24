"""The sessions of a mosquitto.db into a new store.

Owns: which records a session becomes, and what of it is not moved.
Never: a file. The records go through the store, as those of a server do.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, final

from embermq.mosquitto.database import (
    QUEUED,
    RESEND_PUBREL,
    WAIT_FOR_PUBCOMP,
    Database,
    Owed,
    StoredClient,
    StoredMessage,
)
from embermq.protocol.packets import Publish, SubscriptionRequest
from embermq.store.interface import Store
from embermq.store.records import Disconnected, Received, SessionOpened, Subscribed

NEW_COPY: Final = -1
"""The offset of a message that has no record in the log: the queue makes one."""
EXPIRY: Final = 0x02

UserOf = Callable[[StoredClient], str | None]
"""By what name the server will know the user of a session; None if that cannot be said."""


def retained_messages(database: Database, now_s: int) -> Iterator[Publish]:
    """The retained messages that have not expired, in the order in which they were published."""
    for message_id in sorted(database.retained):
        message = database.messages.get(message_id)
        if message is not None and message.payload and not _has_expired(message, now_s):
            yield _publish(message, now_s, retain=True)


def unreleased_messages(database: Database, sessions: "MovedSessions", now_s: int) -> Iterator[Publish]:
    """What clients have sent at QoS 2 and not released: Mosquitto has not given it to anybody yet."""
    for client in sessions.moved:
        for owed in client.owed:
            message = database.messages.get(owed.message_id)
            if not owed.is_outgoing and message is not None and not _has_expired(message, now_s):
                yield _publish(message, now_s, owed.retain)


def _has_expired(message: StoredMessage, now_s: int) -> bool:
    return 0 < message.expires_s <= now_s


def _publish(message: StoredMessage, now_s: int, retain: bool) -> Publish:
    """A message with what is left of its Message Expiry Interval, which is then the first of its properties."""
    properties = message.properties
    if message.expires_s:
        left_s = min(message.expires_s - now_s, 0xFFFF_FFFF)
        properties = bytes((EXPIRY,)) + left_s.to_bytes(4, "big") + properties
    return Publish(
        message.topic_name,
        message.payload,
        message.qos,
        retain,
        properties=properties,
        expires_us=message.expires_s * 1_000_000,
    )


@final
class MovedSessions:
    """The sessions that were moved, and how many messages they are owed; what was not moved is counted by reason."""

    def __init__(self, store: Store, database: Database, user_of: UserOf, expiry_max_s: int, now_us: int) -> None:
        self.moved: Final[list[StoredClient]] = []
        self.not_moved: Final[Counter[str]] = Counter()
        self._queued = 0
        self._subscriptions = 0
        self._store: Final = store
        self._database: Final = database
        self._user_of: Final = user_of
        self._expiry_max_s: Final = expiry_max_s
        self._now_us: Final = now_us

    @property
    def queued(self) -> int:
        return self._queued

    @property
    def subscriptions(self) -> int:
        return self._subscriptions

    def move(self) -> Iterator[int]:
        """Append the records of all sessions. Yields after each about how many bytes it took; the caller commits."""
        for client in self._database.clients.values():
            user_name = self._user_of(client)
            if not client.client_id or not client.expiry_s:  # such as Mosquitto's own end of a bridge
                self.not_moved["messages owed to bridges of Mosquitto"] += len(client.owed)
            elif 0 < client.expires_s <= self._now_us // 1_000_000:
                self.not_moved["sessions that have expired"] += 1
            elif user_name is None:
                self.not_moved["sessions of which format 5 does not say the user"] += 1
            else:
                yield self._move(client, user_name)

    def _move(self, client: StoredClient, user_name: str) -> int:
        store, client_id = self._store, client.client_id
        session_id = store.sessions.new_id()
        expiry_s = min(client.expiry_s, self._expiry_max_s)
        store.append(SessionOpened(session_id, client_id, user_name, expiry_s))
        for each in client.subscriptions:
            request = SubscriptionRequest(
                each.topic_filter, each.qos, each.no_local, each.retain_as_published, 0, each.subscription_id
            )
            store.append(Subscribed(client_id, session_id, request, False))
            self._subscriptions += 1
        for packet_id in sorted({owed.packet_id for owed in client.owed if not owed.is_outgoing}):
            store.append(Received(session_id, client_id, packet_id))
        sent, size_bytes = self._queue(client, session_id)
        store.append(Disconnected(client_id, session_id, "moved from Mosquitto", sent))
        self.moved.append(client)
        return size_bytes

    def _queue(self, client: StoredClient, session_id: int) -> tuple[int, int]:
        """Put what a client is owed into its queue; returns how much of it was sent before, and its bytes."""
        queue = self._store.sessions.queue(session_id)
        assert queue is not None, "an engine on disk has queues"
        sent = size_bytes = 0
        for owed, message in self._still_owed(client):
            published = _publish(message, self._now_us // 1_000_000, retain=False)
            sequence = queue.push(published, NEW_COPY, owed.qos, owed.retain, owed.subscription_ids)
            size_bytes += len(message.topic_name) + len(message.payload)
            self._queued += 1
            if owed.state != QUEUED:
                sent = sequence
        return sent, size_bytes

    def _still_owed(self, client: StoredClient) -> Iterator[tuple[Owed, StoredMessage]]:
        for owed in client.owed:
            message = self._database.messages.get(owed.message_id)
            if not owed.is_outgoing:
                continue
            if message is None or _has_expired(message, self._now_us // 1_000_000):
                self.not_moved["messages in queues that have expired"] += 1
            elif not owed.qos:
                self.not_moved["messages of QoS 0 in queues"] += 1
            elif owed.state in (RESEND_PUBREL, WAIT_FOR_PUBCOMP):
                self.not_moved["messages of QoS 2 that clients have and did not complete"] += 1
            else:
                yield owed, message
