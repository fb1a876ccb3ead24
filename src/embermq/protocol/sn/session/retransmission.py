"""Retransmission: what was sent and has not been acknowledged, and when it is sent again (digest section 20).

Owns: the unacknowledged packets of one client, their deadlines, and when to give up.
Never: a clock or a socket: `due` hands back what must be sent now.
"""

from random import Random
from typing import Final, final

from embermq.protocol.sn.wire.kinds import SnPacket

BACKOFF_STEPS_MAX: Final = 16


@final
class Unacknowledged:
    """One packet that waits for its answer. `again` is what is sent the next time, with DUP where the profile says."""

    __slots__ = ("kind", "packet_id", "again", "tries", "due_ms")

    def __init__(self, kind: int, packet_id: int, again: SnPacket, due_ms: int) -> None:
        self.kind: Final = kind
        self.packet_id: Final = packet_id
        self.again: Final = again
        self.tries = 0
        self.due_ms = due_ms


@final
class Retransmission:
    """The unacknowledged packets of one client, by kind and packet id, the oldest first."""

    __slots__ = ("_waiting", "_retry_ms", "_tries_max", "_backoff_max_ms", "_backoff", "_random")

    def __init__(self, retry_ms: int, tries_max: int, backoff_max_ms: int, backoff: bool, random: Random) -> None:
        """`backoff`: 2.0's growing pauses; without, 1.2's fixed ones."""
        self._waiting: dict[tuple[int, int], Unacknowledged] = {}
        self._retry_ms: Final = retry_ms
        self._tries_max: Final = tries_max
        self._backoff_max_ms: Final = backoff_max_ms
        self._backoff: Final = backoff
        self._random: Final = random

    def __len__(self) -> int:
        return len(self._waiting)

    def sent(self, kind: int, packet_id: int, again: SnPacket, now_ms: int) -> None:
        """A packet has left that wants an answer. The same again starts anew."""
        self._waiting[(kind, packet_id)] = Unacknowledged(kind, packet_id, again, now_ms + self._retry_ms)

    def acknowledged(self, kind: int, packet_id: int) -> SnPacket | None:
        """The answer has come; returns what it answers, or None if nothing of that id waited."""
        entry = self._waiting.pop((kind, packet_id), None)
        return None if entry is None else entry.again

    def waits(self, kind: int) -> bool:
        """Whether a packet of that kind is unacknowledged."""
        return any(entry.kind == kind for entry in self._waiting.values())

    def next_ms(self) -> int:
        """When something is due; 0 for never."""
        return min((entry.due_ms for entry in self._waiting.values()), default=0)

    def due(self, now_ms: int) -> list[SnPacket] | None:
        """What must be sent again now. None: one packet has been tried too often, the client is lost."""
        again: list[SnPacket] = []
        for entry in self._waiting.values():
            if entry.due_ms <= now_ms:
                if entry.tries >= self._tries_max:
                    return None
                entry.tries += 1
                entry.due_ms = now_ms + self._pause_ms(entry.tries)
                again.append(entry.again)
        return again

    def resume(self, now_ms: int) -> list[SnPacket]:
        """A client that slept is awake: everything is sent again, and counted anew."""
        for entry in self._waiting.values():
            entry.tries = 0
            entry.due_ms = now_ms + self._retry_ms
        return [entry.again for entry in self._waiting.values()]

    def _pause_ms(self, tries: int) -> int:
        if not self._backoff:
            return self._retry_ms
        # The drafts start at 5 s and add 2^n seconds and a random part of one: the same in units of our first pause.
        unit_ms = max(1, self._retry_ms // 5)
        steps = min(tries - 1, BACKOFF_STEPS_MAX)
        pause_ms = (unit_ms << steps) + self._random.randint(0, unit_ms)
        return self._retry_ms + min(pause_ms, self._backoff_max_ms)
