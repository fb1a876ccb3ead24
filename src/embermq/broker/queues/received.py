"""The QoS 2 packet identifiers that one client has sent and not released yet (3.1.1 section 4.3.3).

Owns: which they are, and the number of the effect that sends the PUBREC of each. The identifiers of messages that came
as a run are kept as one `ReceivedRun` while the client releases them in the order of the run. Code that needs
a single identifier calls `parted` first, which replaces all runs by single identifiers.
"""

from typing import Final, final

RUNS_MAX: Final = 64
"""More runs are parted: every message looks for its identifier in all of them."""


@final
class ReceivedRun:
    """Identifiers that count up by one, from `first_id` to the one before `end_id`; their PUBRECs wait for `effect`."""

    __slots__ = ("effect", "end_id", "first_id")

    def __init__(self, first_id: int, end_id: int, effect: int) -> None:
        self.first_id = first_id
        self.end_id: Final = end_id
        self.effect: Final = effect


@final
class ReceivedIds:
    """The identifiers of one client. Those in `_runs` are not in `_by_id`."""

    __slots__ = ("_by_id", "_runs")

    def __init__(self) -> None:
        self._by_id: Final[dict[int, int]] = {}
        self._runs: list[ReceivedRun] = []

    def ids(self) -> list[int]:
        """All identifiers."""
        found = list(self._by_id)
        for run in self._runs:
            found += range(run.first_id, run.end_id)
        return found

    def parted(self) -> dict[int, int]:
        """The number of the effect of each, by identifier; from now on there are no runs."""
        if self._runs:
            for run in self._runs:
                for packet_id in range(run.first_id, run.end_id):
                    self._by_id[packet_id] = run.effect
            self._runs = []
        return self._by_id

    def has_any(self, first_id: int, count: int) -> bool:
        """Whether one of these was received and not released."""
        end_id = first_id + count
        for run in self._runs:
            if first_id < run.end_id and run.first_id < end_id:
                return True
        by_id = self._by_id
        if by_id:
            for packet_id in range(first_id, end_id):
                if packet_id in by_id:
                    return True
        return False

    def add_run(self, first_id: int, count: int, effect: int) -> None:
        """Messages have come with identifiers of which none is here."""
        if len(self._runs) >= RUNS_MAX:
            self.parted()
        self._runs.append(ReceivedRun(first_id, first_id + count, effect))

    def release(self, first_id: int, count: int, effect: int) -> int:
        """PUBREL for identifiers from one on. How many of the first ones were in runs with this effect or an older."""
        done = 0
        for run in self._runs:
            if run.first_id == first_id + done and run.effect <= effect:
                released = min(run.end_id - run.first_id, count - done)
                run.first_id += released
                done += released
                if done == count:
                    break
            elif done:
                break
        if done:
            self._runs = [run for run in self._runs if run.first_id < run.end_id]
        return done
