"""Sessions and their deadlines, and that nothing of a session stays in memory when it has ended."""

import gc

from embermq.broker.access import AllowAll
from embermq.broker.core import Core
from embermq.broker.deadlines import STALE_MAX, Deadlines
from embermq.broker.limits import Limits
from embermq.broker.session import Session
from embermq.store.interface import SavedSession
from support.core import Bench, new_session
from support.stores import ScriptedStore


def session(keep_alive_ms: int) -> Session:
    made = new_session()
    made.keep_alive_ms = keep_alive_ms
    return made


def test_what_falls_due_comes_in_order_and_once() -> None:
    deadlines: Deadlines[Session] = Deadlines(lambda each: each.keep_alive_ms)
    late, soon, never = session(300), session(100), session(0)
    for each in (late, soon, never):
        deadlines.watch(each)
    assert deadlines.next_ms() == 100
    assert deadlines.expired(99, 10) == []
    assert deadlines.expired(300, 10) == [soon, late]
    assert deadlines.expired(1_000, 10) == []


def test_a_deadline_may_move_both_ways() -> None:
    deadlines: Deadlines[Session] = Deadlines(lambda each: each.keep_alive_ms)
    moving = session(100)
    deadlines.watch(moving)
    moving.keep_alive_ms = 200
    assert deadlines.expired(150, 10) == []
    moving.keep_alive_ms = 160
    deadlines.watch(moving)
    assert deadlines.expired(160, 10) == [moving]
    assert deadlines.expired(1_000, 10) == []


def test_what_is_forgotten_never_falls_due_and_takes_no_room() -> None:
    deadlines: Deadlines[Session] = Deadlines(lambda each: each.keep_alive_ms)
    kept = session(50)
    deadlines.watch(kept)
    for _ in range(10 * STALE_MAX):
        gone = session(98_302_500)
        deadlines.watch(gone)
        deadlines.forget(gone)
        deadlines.forget(gone)
    assert len(deadlines) <= STALE_MAX + 3
    assert deadlines.expired(1 << 40, 10) == [kept]


def test_a_client_that_left_is_not_remembered_until_its_keep_alive_would_have_ended() -> None:
    bench = Bench()
    bench.lose(bench.join("left at once", keep_alive_s=65_535))
    gc.collect()
    kept = [each for each in gc.get_objects() if type(each) is Session and each.client_id == "left at once"]
    assert kept == []


def restored(up_ms: int, away_s: int, expiry_s: int) -> Core:
    wall_us = 1_800_000_000_000_000
    ended_us = wall_us - away_s * 1_000_000
    store = ScriptedStore(saved=[SavedSession(1, "away", "", expiry_s, ended_us, [], set(), [], None)])
    core = Core(store, AllowAll(), Limits(), lambda: None, lambda error: None, "test", "seed")
    core.restore(up_ms, wall_us)
    core.tick(up_ms, wall_us)
    return core


def test_a_session_expires_although_the_machine_was_started_a_minute_ago() -> None:
    """The loop's clock counts from the start of the machine; the session may have been lost long before."""
    assert restored(up_ms=60_000, away_s=7_200, expiry_s=3_600).sessions() == []
    assert len(restored(up_ms=60_000, away_s=3_000, expiry_s=3_600).sessions()) == 1
    assert len(restored(up_ms=60_000, away_s=60, expiry_s=3_600).sessions()) == 1


def test_a_clock_that_was_set_back_ends_no_session() -> None:
    [session] = restored(up_ms=60_000, away_s=-86_400, expiry_s=3_600).sessions()
    assert session.link is None


def test_a_session_counts_what_its_client_is_owed() -> None:
    bench = Bench(limits=Limits(inflight_max=2))
    for n in range(5):
        bench.publish(f"retained/{n}", b"x", qos=1, retain=True)
    client = bench.join("c", clean=False)
    assert bench.core.owed(client) == 0
    bench.subscribed(client, "t", 1)
    for _ in range(5):
        bench.publish("t", b"x", qos=1)
    assert bench.core.owed(client) == 5
    client.take()
    bench.subscribed(client, "retained/#", 1)
    assert bench.core.owed(client) == 6, "the retained messages that are still to be read count as one"
    bench.lose(client)
    assert bench.core.owed(client) == 0, "the link has no session any more"
