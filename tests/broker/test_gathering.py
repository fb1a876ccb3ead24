"""A group that is about to be committed may wait for more records (`Effects.commit_or_gather`)."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from embermq.broker.effects import (
    GATHER_ENOUGH,
    GATHER_QUIET_MS,
    REST_AFTER_MS,
    UNGATHERED_MAX,
)
from embermq.protocol.packets import Publish
from support.acknowledgements import puback
from support.core import Bench, ScriptedLink
from support.stores import ScriptedStore

GATHER_US = 500


class Timers:
    """Calls that are due later; the test makes them."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_in_us(self, wait_us: int, call: Callable[[], None]) -> None:
        assert wait_us == GATHER_US
        self.calls.append(call)

    def elapse(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def bench(store: ScriptedStore, timers: Timers) -> Bench:
    bench = Bench(store, wake_in_us=timers.call_in_us)
    bench.pass_s(1)
    bench.core.effects.gather_for(GATHER_US)
    return bench


def publish(bench: Bench, link: ScriptedLink, packet_id: int = 1) -> None:
    bench.send(link, Publish("t", b"x", 1, packet_id=packet_id))


def clients(bench: Bench, count: int) -> list[ScriptedLink]:
    return [bench.join(f"c{number}") for number in range(count)]


def test_a_message_after_a_quiet_time_is_committed_at_once(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    [client] = clients(bench, 1)
    publish(bench, client)
    assert store.done is not None
    assert not timers.calls


def test_small_groups_that_follow_closely_are_one_commit(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    first, second, third = clients(bench, 3)
    publish(bench, first)
    bench.commit()
    commits = store.commits
    publish(bench, second)
    publish(bench, third)
    assert store.done is None
    assert store.commits == commits
    timers.elapse()
    assert store.commits == commits + 1
    bench.commit()
    assert [second.take(), third.take()] == [[puback(1, 0x10)], [puback(1, 0x10)]]


def test_while_the_processor_has_time_no_group_waits(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    first, second = clients(bench, 2)
    bench.core.effects.gather_for(0)
    for client in (first, second, first, second):
        publish(bench, client, store.commits + 1)
        assert store.done is not None
        bench.commit()
    assert not timers.calls


def test_after_a_quiet_time_a_group_does_not_wait(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    first, second = clients(bench, 2)
    publish(bench, first)
    bench.commit()
    bench.now_ms += GATHER_QUIET_MS + 1
    publish(bench, second)
    assert store.done is not None


def test_a_client_that_waits_for_each_answer_loses_time_seldom(
    bench: Bench, store: ScriptedStore, timers: Timers
) -> None:
    [client] = clients(bench, 1)
    waited: list[int] = []
    for number in range(1, 3 * UNGATHERED_MAX + 10):
        publish(bench, client, number)
        if store.done is None:
            waited.append(number)
            timers.elapse()
        bench.commit()
        assert client.take() == [puback(number, 0x10)]
    between = [later - earlier - 1 for earlier, later in pairwise(waited)]
    assert between == [1, 2, 4, 8, 16, 32, UNGATHERED_MAX, UNGATHERED_MAX]


def test_a_group_that_has_gained_lets_the_next_ones_wait(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    first, second = clients(bench, 2)
    waited: list[bool] = []
    for packet_id, is_joined in enumerate((False, False, False, True, False, False, True, False, False, True), 1):
        publish(bench, first, packet_id)
        waited.append(store.done is None)
        if waited[-1]:
            if is_joined:
                publish(bench, second, packet_id)
            timers.elapse()
        bench.commit()
    # The second gains too little, so the third does not wait. The fourth gains: after the fifth it is again only one.
    assert waited == [False, True, False, True, True, False, True, True, False, True]


def test_a_client_that_sends_without_waiting_is_not_delayed(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    first, second = clients(bench, 2)
    publish(bench, first)
    bench.commit()
    bench.send(second, Publish("t", b"x", 1, packet_id=1), Publish("t", b"x", 1, packet_id=2))
    assert store.done is not None


def test_a_group_with_enough_in_it_stops_waiting(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    first, *others = clients(bench, GATHER_ENOUGH + 1)
    publish(bench, first)
    bench.commit()
    for client in others[:-1]:
        publish(bench, client)
        assert store.done is None
    publish(bench, others[-1])
    assert store.done is not None
    timers.elapse()  # the timer finds nothing to do
    bench.commit()
    assert others[-1].take() == [puback(1, 0x10)]


def test_the_server_may_rest_while_a_group_gathers(bench: Bench, store: ScriptedStore, timers: Timers) -> None:
    first, second = clients(bench, 2)
    effects = bench.core.effects
    publish(bench, first)
    assert not effects.may_rest(), "its group is being written"
    bench.commit()
    assert not effects.may_rest(), "there is nothing to wait for"
    publish(bench, second)
    assert effects.may_rest()
    timers.elapse()
    assert not effects.may_rest()


def test_the_server_does_not_rest_while_messages_come_that_wait_for_no_group(
    bench: Bench, store: ScriptedStore, timers: Timers
) -> None:
    first, *others = clients(bench, 3)

    def rests(packet_id: int) -> bool:
        bench.now_ms += GATHER_QUIET_MS + 1
        publish(bench, first, packet_id)
        bench.commit()
        for client in others:
            publish(bench, client, packet_id)
        assert store.done is None
        found = bench.core.effects.may_rest()
        timers.elapse()
        bench.commit()
        return found

    assert rests(1)
    bench.send(first, Publish("t", b"x"))
    assert not rests(2)
    bench.now_ms += REST_AFTER_MS
    assert rests(3)
