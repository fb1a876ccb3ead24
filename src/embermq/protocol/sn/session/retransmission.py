"""Retransmission: what was sent and is not acknowledged, and when it is sent again (1.2: 6.13; 2.0: 4.4).

Owns: the unacknowledged packets of one client, their deadlines, and when to give up.
Never: a clock or a socket: `due` hands back what must be sent now.
"""

from random import Random
from typing import Final, final

from embermq.protocol.sn.wire.kinds import SnPacket

BACKOFF_STEPS_MAX: Final = 16


@final
class Unacknowledged:
    """One packet without its answer. `again` is what is sent the next time, with DUP where the profile says so."""

    __slots__ = ("kind", "packet_id", "again", "tries", "due_ms")

    def __init__(self, kind: int, packet_id: int, again: SnPacket, due_ms: int) -> None:
        self.kind: Final = kind
        self.packet_id: Final = packet_id
        self.again: Final = again
        self.tries = 0
        self.due_ms = due_ms


@final
class Retransmission:
    """The unacknowledged packets of one client, by kind and packet identifier, the oldest first."""

    __slots__ = ("_packets", "_retry_ms", "_tries_max", "_backoff_max_ms", "_backoff", "_random")

    def __init__(self, retry_ms: int, tries_max: int, backoff_max_ms: int, backoff: bool, random: Random) -> None:
        """`backoff`: the pauses grow (2.0); without, they are equal (1.2)."""
        self._packets: dict[tuple[int, int], Unacknowledged] = {}
        self._retry_ms: Final = retry_ms
        self._tries_max: Final = tries_max
        self._backoff_max_ms: Final = backoff_max_ms
        self._backoff: Final = backoff
        self._random: Final = random

    def __len__(self) -> int:
        return len(self._packets)

    def sent(self, kind: int, packet_id: int, again: SnPacket, now_ms: int) -> None:
        """A packet was sent that has to be answered; an older one of that kind and id is replaced."""
        self._packets[(kind, packet_id)] = Unacknowledged(kind, packet_id, again, now_ms + self._retry_ms)

    def acknowledged(self, kind: int, packet_id: int) -> SnPacket | None:
        """The answer has come; returns the packet that it answers, or None if there is none of that id."""
        entry = self._packets.pop((kind, packet_id), None)
        return None if entry is None else entry.again

    def next_ms(self) -> int:
        """When something is due; 0 for never."""
        return min((entry.due_ms for entry in self._packets.values()), default=0)

    def due(self, now_ms: int) -> list[SnPacket] | None:
        """What must be sent again now. None: a packet has been sent too often without an answer."""
        again: list[SnPacket] = []
        for entry in self._packets.values():
            if entry.due_ms <= now_ms:
                if entry.tries >= self._tries_max:
                    return None
                entry.tries += 1
                entry.due_ms = now_ms + self._pause_ms(entry.tries)
                again.append(entry.again)
        return again

    def resume(self, now_ms: int) -> list[SnPacket]:
        """A sleeping client is awake: everything is sent again, and the number of tries starts from 0."""
        for entry in self._packets.values():
            entry.tries = 0
            entry.due_ms = now_ms + self._retry_ms
        return [entry.again for entry in self._packets.values()]

    def _pause_ms(self, tries: int) -> int:
        if not self._backoff:
            return self._retry_ms
        # The drafts start at 5 s and add 2^n s and a random part of 1 s: the same proportions for another first pause.
        unit_ms = max(1, self._retry_ms // 5)
        steps = min(tries - 1, BACKOFF_STEPS_MAX)
        pause_ms = (unit_ms << steps) + self._random.randint(0, unit_ms)
        return self._retry_ms + min(pause_ms, self._backoff_max_ms)
