"""The messages at QoS 1 and 2 that one client has been sent and has not acknowledged.

Owns: what is in flight, oldest first, by packet identifier. Messages that were sent as a run are kept as one `SentRun`
while the client acknowledges them in the order in which they were sent, as most clients do. Code that needs a single
message calls `parted` first, which replaces all runs by a `Delivery` for each message.
"""

from itertools import islice
from typing import Final, final

from embermq.protocol.packets import Delivery, Publish
from embermq.store.interface import RetainedPiece

RUNS_MAX: Final = 64
"""More runs are parted: an acknowledgement looks for its run among all of them."""


@final
class SentRun:
    """Messages with sequence numbers and packet identifiers that count up by one, all sent in the same way.

    `piece`: a run of retained messages, which have no properties, has these in the place of `messages`.
    `acknowledged` and `released`: how many of the first ones are done, and for how many of them PUBREC has come.
    `size_bytes`: the topic names, payloads and properties of those that are not acknowledged.
    """

    __slots__ = (
        "acknowledged",
        "count",
        "packet_id",
        "qos",
        "released",
        "sequence",
        "size_bytes",
        "_messages",
        "_piece",
        "_subscription_ids",
    )

    def __init__(
        self,
        sequence: int,
        packet_id: int,
        qos: int,
        messages: list[Publish],
        piece: RetainedPiece | None,
        subscription_ids: tuple[int, ...],
        size_bytes: int,
    ) -> None:
        self.sequence: Final = sequence  # of the first message, as its packet identifier
        self.packet_id: Final = packet_id
        self.qos: Final = qos
        self.count: Final = len(messages) if piece is None else len(piece)
        self.acknowledged = 0
        self.released = 0
        self.size_bytes = size_bytes
        self._messages: Final = messages
        self._piece: Final = piece
        self._subscription_ids: Final = subscription_ids

    def acknowledge(self, count: int) -> int:
        """The next ones are done; returns their bytes."""
        first = self.acknowledged
        self.acknowledged = end = first + count
        if end == self.count:
            done_bytes = self.size_bytes
        else:
            done_bytes = 0 if self._piece is None else self._piece.queued_bytes(first, end)
            for message in self._messages[first:end]:
                done_bytes += len(message.topic_name) + len(message.payload) + len(message.properties)
        self.size_bytes -= done_bytes
        return done_bytes

    def first(self, count: int) -> list[Publish]:
        """Messages that are not acknowledged, up to this many; none if they are in a piece."""
        return self._messages[self.acknowledged : self.acknowledged + count]

    def deliveries(self) -> list[Delivery]:
        """Those that are not acknowledged, one by one."""
        messages, piece = self._messages, self._piece
        if piece is not None:
            messages = [Publish(each.topic_name, each.payload, each.qos, True) for each in piece.found()]
        return [
            Delivery(
                messages[row],
                self.qos,
                piece is not None,
                False,
                self.packet_id + row,
                self._subscription_ids,
                self.sequence + row,
                row < self.released,
            )
            for row in range(self.acknowledged, self.count)
        ]


@final
class Inflight:
    """What one client has not acknowledged.

    `by_id` has all of it when there are no `runs`; else the runs are newer than what is there.
    """

    __slots__ = ("by_id", "runs", "_in_runs")

    def __init__(self) -> None:
        self.by_id: Final[dict[int, Delivery]] = {}
        self.runs: list[SentRun] = []
        self._in_runs = 0  # messages

    def __len__(self) -> int:
        return len(self.by_id) + self._in_runs

    def ids(self) -> list[int]:
        """The packet identifiers, oldest first."""
        found = list(self.by_id)
        for run in self.runs:
            found += range(run.packet_id + run.acknowledged, run.packet_id + run.count)
        return found

    def oldest_sequence(self) -> int:
        """The sequence number of the oldest message; there is one."""
        by_id = self.by_id
        if by_id:
            return by_id[next(iter(by_id))].sequence
        run = self.runs[0]
        return run.sequence + run.acknowledged

    def first(self, count: int) -> list[Publish]:
        """Some of the oldest messages, up to this many; none of those that are in a piece."""
        if not self.by_id and self.runs:
            return self.runs[0].first(count)
        return [delivery.message for delivery in islice(self.by_id.values(), count)]

    def parted(self) -> dict[int, Delivery]:
        """All messages by packet identifier, each as an object of its own."""
        if self.runs:
            by_id = self.by_id
            for run in self.runs:
                for delivery in run.deliveries():
                    by_id[delivery.packet_id] = delivery
            self.runs = []
            self._in_runs = 0
        return self.by_id

    # -- runs ------------------------------------------------------------------------------------------------------

    def add_run(self, run: SentRun) -> None:
        """Newer messages than all that are in flight."""
        if len(self.runs) >= RUNS_MAX:
            self.parted()
        self.runs.append(run)
        self._in_runs += run.count

    def release(self, packet_id: int, count: int) -> int:
        """PUBREC of messages from an identifier on. How many of the first ones are released now and were not before."""
        done = 0
        for run in self.runs:
            if run.qos == 2 and run.released < run.count and run.packet_id + run.released == packet_id + done:
                released = min(run.count - run.released, count - done)
                run.released += released
                done += released
                if done == count:
                    break
            elif done:
                break
        return done

    def finish(self, packet_id: int, count: int, is_puback: bool) -> tuple[int, int]:
        """PUBACK or PUBCOMP of messages from an identifier on: how many of the first ones are done, and their bytes."""
        done = done_bytes = 0
        for run in self.runs:
            end = run.count if run.qos == 1 else run.released
            is_next = run.packet_id + run.acknowledged == packet_id + done
            if is_next and (run.qos == 1) == is_puback and end > run.acknowledged:
                acknowledged = min(end - run.acknowledged, count - done)
                done_bytes += run.acknowledge(acknowledged)
                done += acknowledged
                if done == count:
                    break
            elif done:
                break
        if done:
            self._in_runs -= done
            self.runs = [run for run in self.runs if run.acknowledged < run.count]
        return done, done_bytes
