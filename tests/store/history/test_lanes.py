"""The threads that answer what was: how many at a time, whose question is next, and what nobody wants any more."""

import subprocess
import sys
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Event

import pytest

from embermq.store.history.lanes import WAITING_MAX, IsWanted, ReadLane

THREADS = 3
HANGING = """
from threading import Event
from embermq.store.history.lanes import ReadLanes

lanes, begun = ReadLanes(), Event()
lanes.fetching.ask(lambda _: (begun.set(), Event().wait()))
begun.wait()
lanes.close()
print("ended")
"""


class Asked:
    """A question that waits, if it is to, until it is let; then it asks whether it is wanted, so often."""

    def __init__(self, name: str, begun: "SimpleQueue[str]", go_on: Event | None, looks: int = 0) -> None:
        self._name = name
        self._begun = begun
        self._go_on = go_on
        self._looks = looks
        self.is_wanted = True
        self.was_wanted: list[bool] = []

    def __call__(self, is_wanted: IsWanted) -> None:
        self._begun.put(self._name)
        if self._go_on is not None:
            assert self._go_on.wait(60)
        self.was_wanted = [is_wanted() for _ in range(self._looks)]
        self._begun.put(f"{self._name} ended")


class Held:
    """A lane whose threads all wait, each with a question."""

    def __init__(self, threads: int) -> None:
        self.begun: SimpleQueue[str] = SimpleQueue()
        self.go_on = Event()
        self.removed = Event()
        self.lane = ReadLane("test", threads, self.removed.set)
        self.held = [self.ask(f"held {number}", self.go_on, looks=3) for number in range(threads)]
        assert self.take(threads) == {f"held {number}" for number in range(threads)}

    def ask(self, name: str, go_on: Event | None = None, is_quick: bool = False, looks: int = 0) -> Asked:
        asked = Asked(name, self.begun, go_on, looks)
        self.lane.ask(asked, lambda: asked.is_wanted, lambda: is_quick)
        return asked

    def take(self, count: int) -> set[str]:
        return set(self.order(count))

    def order(self, count: int) -> list[str]:
        return [self.begun.get(timeout=60) for _ in range(count)]


@pytest.fixture
def one() -> Iterator[Held]:
    yield from held(1)


@pytest.fixture
def some() -> Iterator[Held]:
    yield from held(THREADS)


def held(threads: int) -> Iterator[Held]:
    held = Held(threads)
    yield held
    held.go_on.set()
    held.lane.close(60)


def test_so_many_are_answered_at_a_time_and_unwanted_ones_are_not_begun(some: Held) -> None:
    later = [some.ask(str(number)) for number in range(5)]
    assert some.begun.empty()
    later[3].is_wanted = False
    some.go_on.set()
    said = some.take(THREADS + 2 * 4)
    assert {name for name in said if "ended" not in name} == {"0", "1", "2", "4"}


def test_they_are_begun_in_the_order_in_which_they_were_asked(one: Held) -> None:
    for number in range(4):
        one.ask(str(number))
    one.go_on.set()
    assert [name for name in one.order(9) if name.isdigit()] == ["0", "1", "2", "3"]


def test_many_unwanted_ones_take_no_memory(one: Held) -> None:
    one.ask("wanted")
    for _ in range(3 * WAITING_MAX):
        one.ask("unwanted").is_wanted = False
    assert len(one.lane._waiting) <= WAITING_MAX
    one.go_on.set()
    assert one.order(3) == ["held 0 ended", "wanted", "wanted ended"]


def test_quick_ones_are_answered_while_a_long_one_goes_on(one: Held) -> None:
    one.ask("slow")
    for name in ("a", "b", "c", "d"):
        one.ask(name, is_quick=True, looks=1)
    one.go_on.set()  # the held one asks three times whether it is wanted
    said = [name for name in one.order(11) if name == "held 0 ended" or "ended" not in name]
    assert said == ["a", "b", "c", "held 0 ended", "slow", "d"], "one at a time, and each once"


def test_what_nobody_wants_any_more_is_told_so(one: Held) -> None:
    one.held[0].is_wanted = False
    one.go_on.set()
    one.order(1)
    assert one.held[0].was_wanted == [False] * 3


def test_the_end_gives_up_what_is_under_way_and_does_not_begin_the_rest(one: Held) -> None:
    later = one.ask("later")
    one.lane.close(0)  # it does not wait for the one that is held
    assert not one.removed.is_set()
    one.go_on.set()
    assert one.removed.wait(60)
    assert one.held[0].was_wanted == [False] * 3
    assert one.order(1) == ["held 0 ended"] and one.begun.empty() and later.is_wanted


def test_a_lane_that_was_not_asked_has_no_thread_and_no_end() -> None:
    ended = Event()
    lane = ReadLane("test", 1, ended.set)
    lane.close(None)
    lane.ask(lambda _: ended.set())
    assert not ended.is_set() and not lane._threads


def test_a_process_ends_although_the_archive_does_not_answer() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr
