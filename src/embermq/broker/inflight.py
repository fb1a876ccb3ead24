"""The messages at QoS 1 and 2 that one client has been sent and has not acknowledged.

Owns: what is in flight, as runs, oldest first. An acknowledgement of some messages of a run cuts it: what is
acknowledged becomes a run of its own, and so does what precedes it. Clients acknowledge messages in the order in which
they were sent, mostly, so few runs are cut.

There is no index by packet identifier. Sequence numbers ascend, an identifier follows from a sequence number, and the
messages in flight are less than 65,535 apart (`Outbound`). So an identifier tells the sequence number, and a binary
search finds the run.
"""

from typing import Final, final

from embermq.protocol.packets import PACKET_IDS, Delivery


@final
class Inflight:
    """What one client has not acknowledged."""

    __slots__ = ("runs", "_count")

    def __init__(self) -> None:
        self.runs: Final[list[Delivery]] = []
        self._count = 0  # messages

    def __len__(self) -> int:
        """How many messages there are."""
        return self._count

    def ids(self) -> list[int]:
        """The packet identifiers, oldest first."""
        return [packet_id for run in self.runs for packet_id in range(run.packet_id, run.packet_id + len(run))]

    def oldest_sequence(self) -> int:
        """The sequence number of the oldest message; there is one."""
        return self.runs[0].sequence

    def add(self, run: Delivery) -> None:
        """Newer messages than all that are in flight."""
        self.runs.append(run)
        self._count += len(run)

    def remove(self, place: int) -> Delivery:
        """A run is acknowledged, or counts as delivered."""
        run = self.runs.pop(place)
        self._count -= len(run)
        return run

    def replace(self, place: int, run: Delivery) -> None:
        """A run is sent again."""
        self.runs[place] = run

    def find(self, packet_id: int, count: int, qos: int) -> int:
        """The place of the run with the messages from an identifier on, cut to these, up to `count`.

        Below 0: no message of this QoS has the identifier.
        """
        place = self.place_of(packet_id)
        if place < 0:
            return place
        run = self.runs[place]
        if run.qos != qos:
            return -1
        start = packet_id - run.packet_id
        return self.cut(place, start, min(start + count, len(run)))

    def place_of(self, packet_id: int) -> int:
        """The place of the run with a message that has an identifier; below 0: there is none."""
        runs = self.runs
        if not runs:
            return -1
        first = runs[0]
        sequence = first.sequence + (packet_id - first.packet_id) % PACKET_IDS
        low, high = 0, len(runs)
        if sequence < first.sequence + len(first):
            high = 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.runs[middle].sequence <= sequence:
                low = middle
            else:
                high = middle
        return low if sequence < runs[low].sequence + len(runs[low]) else -1

    def cut(self, place: int, start: int, end: int) -> int:
        """Make the messages of a run from one on and before another a run of their own; its place."""
        run = self.runs[place]
        count = len(run)
        if start == 0 and end == count:
            return place
        if end < count:
            self.runs.insert(place + 1, run.part(end, count))
        self.runs[place] = run.part(start, end)
        if start:
            self.runs.insert(place, run.part(0, start))
            return place + 1
        return place

    def next_unsent(self, place: int) -> int:
        """The place of the first run, from one on, that the present connection has not been sent; there is one."""
        while self.runs[place].is_sent:
            place += 1
        return place
