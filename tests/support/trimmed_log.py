"""A data directory whose log was trimmed, made by the store itself, with something of everything that a state holds."""

from collections.abc import Callable
from pathlib import Path

from embermq.protocol.packets import Publish, SubscriptionRequest, Will
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings
from embermq.store.interface import Store
from embermq.store.records import Disconnected, SessionEnded, Subscribed, WillSet
from support.store_calls import open_session, open_shared_queue, retained_scan
from support.store_contract import Engine

SETTINGS = JournalSettings(durability="os", segment_bytes=16 * 1024, retention_bytes=64 * 1024)
STEP_US = 20_000_000
"""More than the time between two checks of the retention."""


def open_journal(data: Path, settings: JournalSettings = SETTINGS) -> Engine:
    def opener(call_soon: Callable[[Callable[[], None]], None], budgets: tuple[RetainedBudget, ...]) -> Store:
        return DiskStore(data, call_soon, settings)

    return Engine(opener)


def first_offset(data: Path) -> int:
    return min(int(path.stem) for path in (data / "log").glob("*.log"))


def publish_until_trimmed(engine: Engine, data: Path, past: int, rounds: int = 2_000) -> None:
    """Publish until the log begins after an offset."""
    for number in range(rounds):
        engine.turn(STEP_US)
        for topic in range(4):
            engine.publish(f"much/{topic}", b"%d" % number + bytes(500))
        engine.commit()
        if first_offset(data) > past:
            return
    raise AssertionError(f"the log is not trimmed: it begins at {first_offset(data)}")


def fill_trimmed(data: Path) -> None:
    """Something of everything from before the log's beginning, and later changes."""
    engine = open_journal(data)
    store = engine.store
    engine.turn()
    for number in range(20):
        engine.publish(f"old/{number}", b"from the beginning %d" % number)
    session = open_session(store, "device", "user", 3_600)
    other = open_session(store, "other", "", 60)
    store.append(Subscribed("device", session.session_id, SubscriptionRequest("a/#", 1, subscription_id=7), True))
    store.append(WillSet("device", session.session_id, "user", Will("will", b"gone", 1, True, 30, b"")))
    queue_id, shared = open_shared_queue(store, "$share/group/a/#")
    assert queue_id and session.queue is not None
    received = Publish("a/2", b"exactly once", 2, packet_id=77)
    store.append_publish(received, "device", session.session_id)
    engine.commit()
    start = store.next_offset()
    publish_until_trimmed(engine, data, start)
    # Owed from here on: what lies before it can be trimmed.
    for number in range(5):
        engine.turn(STEP_US)
        message = Publish("a/b", b"owed %d" % number, 1)
        offset = store.append_publish(message, "publisher")
        session.queue.push(message, offset, 1, False, (7,))
        shared.push(message, offset, 1, False)
        engine.commit()
    session.queue.release(2)
    session.queue.acknowledge(1)
    engine.publish("old/3", b"")
    engine.publish("old/4", b"replaced")
    store.append(Disconnected("device", session.session_id, "gone", 3))
    store.append(SessionEnded(other.session_id, "other"))
    engine.commit()
    store.close()


def everything(data: Path, instants: int = 40) -> object:
    """All that a store says about its directory, the past included."""
    engine = open_journal(data)
    journal = engine.store
    assert isinstance(journal, DiskStore)
    journal.begin_turn(1)
    end_us = max(retained.timestamp_us for retained in retained_scan(journal, "#", "", 100_000)) + 1
    past: list[object] = []
    for number in range(1, instants + 1):
        instant_us = end_us * number // instants
        try:
            found = journal.history.as_of("#", "", 100_000, instant_us)
            past.append([(r.topic_name, r.payload, r.offset, r.timestamp_us) for r in found])
        except Exception as error:
            past.append(str(error))
    sessions = [
        (
            (saved.session_id, saved.client_id, saved.user_name, saved.session_expiry_s, saved.ended_us, saved.sent),
            [(repr(request), offset) for request, offset in saved.subscriptions],
            sorted(saved.received_ids),
            [(p.topic_filter, p.qos, p.before_offset, p.after_topic_name) for p in saved.positions],
            [repr(delivery) for delivery in saved.queue.read(0, 1_000)] if saved.queue else None,
        )
        for saved in journal.sessions.load()
    ]
    shared = [
        (saved.queue_id, saved.share_filter, saved.queue.acknowledged(), saved.queue.last())
        for saved in journal.sessions.shared_queues()
    ]
    wills = [(saved.client_id, saved.user_name, repr(saved.will), saved.ended_us) for saved in journal.sessions.wills()]
    retained = [
        (r.topic_name, r.payload, r.qos, r.properties, r.offset, r.timestamp_us, r.client_id)
        for r in retained_scan(journal, "#", "", 100_000)
    ]
    totals = journal.retained.totals()
    journal.close()
    return retained, past, sessions, shared, wills, totals
