"""What all connected clients together are owed in memory: messages in their queues and in flight, and unread output.

Owns: `limits.all_queue_bytes_max`, when it is looked at, and which clients get less when it is reached.
Never: a clock, a socket. The shell says how much output is unsent, and ends the connections that are named here.
"""

from collections.abc import Iterable
from typing import Final, final

from embermq.broker.context import Context
from embermq.broker.session import Session

ALL_QUEUE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""The limit where the shell does not say how much memory there is."""
MESSAGE_BYTES: Final = 1_024
"""What one more message to one client may take besides its payload, for when to look again."""
STEP_PART: Final = 16
"""It is looked at again after at least this part of the limit was sent, a sixteenth."""
THROTTLED_MS: Final = 1_000
"""A client that is throttled has this long to read before its connection is ended."""
ENDED_MAX: Final = 100
"""How many connections are ended at a time: each frees a queue."""


def held_bytes(session: Session) -> int:
    """What a connected client is owed in memory, with what it shares with others; 0 if it is not connected."""
    link = session.connection()
    return 0 if link is None else session.outbound.memory_bytes + session.shared_bytes + link.unread_bytes()


def heaviest(sessions: Iterable[Session], bytes_min: int, bytes_wanted: int) -> list[Session]:
    """The connected clients with the most in memory, until they have as much as is wanted; each has `bytes_min`."""
    found: list[Session] = []
    for size_bytes, _, session in _holders(sessions):
        if size_bytes < bytes_min or bytes_wanted <= 0 or len(found) >= ENDED_MAX:
            break
        bytes_wanted -= size_bytes
        found.append(session)
    return found


def _holders(sessions: Iterable[Session]) -> list[tuple[int, int, Session]]:
    """All sessions with what they hold, most first; the number makes the order one that does not change."""
    holders = [(held_bytes(session), number, session) for number, session in enumerate(sessions)]
    holders.sort(key=_most_first)
    return holders


@final
class OwedBytes:
    """The bound of all queues and all unread output.

    What was sent since the last look is more than what is owed can have grown by, so that an addition in each turn is
    enough to look in time.
    """

    def __init__(self, context: Context) -> None:
        self._bytes_max = self._due_bytes = context.limits.all_queue_bytes_max or ALL_QUEUE_BYTES_MAX
        self._counters: Final = context.counters
        self._throttled: Final[dict[Session, int]] = {}  # with the instant from which on they are
        self.size_bytes = 0  # when it was last looked at
        self.clients_throttled = 0
        self.clients_ended = 0
        context.counters.others.append(self.counts)

    def bound_by(self, bytes_max: int) -> None:
        """At start: the limit, from one that knows how much memory there is."""
        self._bytes_max = self._due_bytes = bytes_max

    def is_due(self) -> bool:
        """Whether enough was sent since the last look for the limit to be reached; asked in every turn."""
        return self._sent_bytes() >= self._due_bytes

    def _sent_bytes(self) -> int:
        """More than what is owed can have grown by, with what was put into queues of share groups."""
        counters = self._counters
        messages = counters.publish_sent + counters.publish_shared
        payload_bytes = counters.publish_bytes_sent + counters.publish_bytes_shared
        return counters.bytes_sent + payload_bytes + MESSAGE_BYTES * messages

    def has_throttled(self) -> bool:
        """Whether a client is throttled: it is looked at in every tick, also if nothing is sent."""
        return len(self._throttled) > 0

    def look(self, sessions: Iterable[Session], unsent_bytes: int, now_ms: int) -> list[Session]:
        """Add up what is owed. Above the limit, the clients that hold most get no more; returns those to disconnect.

        `unsent_bytes`: the output that clients share, each part counted once.
        """
        size_bytes = unsent_bytes
        for session in sessions:
            link = session.connection()
            if link is not None:
                size_bytes += session.outbound.own_bytes() + session.shared_bytes + link.own_unread_bytes()
        self.size_bytes = size_bytes
        self._due_bytes = self._sent_bytes() + max(self._bytes_max - size_bytes, self._bytes_max // STEP_PART)
        if size_bytes > self._bytes_max:
            return self._relieve(_holders(sessions), size_bytes, now_ms)
        if self._throttled:
            self._release(size_bytes <= self._bytes_max // 2)
        return []

    def _relieve(self, holders: list[tuple[int, int, Session]], size_bytes: int, now_ms: int) -> list[Session]:
        """Throttle those that hold most, and name those that were throttled before and still hold it.

        As many of each as hold the part that is too much. What a client holds includes what it shares with others.
        """
        held = 1
        for holder in holders:
            held += holder[0]
        excess_bytes = held * (size_bytes - self._bytes_max * 3 // 4) // size_bytes
        throttling_bytes = ending_bytes = excess_bytes
        ending: list[Session] = []
        for holder_bytes, _, session in holders:
            link = session.connection()
            if link is None or not holder_bytes:
                break
            since_ms = self._throttled.get(session, -1)
            if since_ms < 0:
                if throttling_bytes > 0:
                    throttling_bytes -= holder_bytes
                    self._throttled[session] = now_ms
                    self.clients_throttled += 1
                    session.outbound.throttle(True)
                    link.throttle(True)
            elif ending_bytes > 0 and now_ms - since_ms >= THROTTLED_MS and len(ending) < ENDED_MAX:
                ending_bytes -= holder_bytes
                ending.append(session)
        for session in ending:
            del self._throttled[session]
            session.outbound.throttle(False)  # a session that is resumed begins without this
        self.clients_ended += len(ending)
        return ending

    def _release(self, is_far_below: bool) -> None:
        for session in list(self._throttled):
            link = session.connection()
            if link is None or is_far_below or held_bytes(session) < session.outbound.memory_bytes_max:
                del self._throttled[session]
                session.outbound.throttle(False)
                if link is not None:
                    link.throttle(False)

    def forget(self, session: Session) -> None:
        """A connection has ended: the next one of its session begins without this."""
        if self._throttled.pop(session, None) is not None:
            session.outbound.throttle(False)

    def counts(self) -> dict[str, int]:
        """For `$SYS/broker/`."""
        return {
            "queues/bytes": self.size_bytes,
            "queues/bytes-max": self._bytes_max,
            "queues/clients-throttled": self.clients_throttled,
            "queues/clients-ended": self.clients_ended,
        }


def _most_first(holder: "tuple[int, int, Session]") -> tuple[int, int]:
    return -holder[0], holder[1]
