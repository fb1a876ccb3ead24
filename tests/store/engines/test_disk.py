"""The store on disk: as every engine, and what a crash, a second server or a bad disk cannot do to it."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import pytest

from embermq.protocol.packets import Publish, SubscriptionRequest
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.opening import JournalSettings, rebuild
from embermq.store.errors import HistoryTrimmed, StateAhead
from embermq.store.interface import Store, StoreError
from embermq.store.records import Connected, RetainedRemoved, SessionEnded, Subscribed
from embermq.store.state.rocks import FLUSH_BYTES
from embermq.store.state.state import StateSettings
from support.crashed_directory import copy_as_crashed
from support.state_samples import BreakableDatabase
from support.store_calls import open_session, retained_scan
from support.store_contract import DurableContract, Engine, expiring, names

Opener = Callable[[Callable[[Callable[[], None]], None], tuple[RetainedBudget, ...]], Store]


def opener(directory: Path, **settings: object) -> Opener:
    def open_journal(call_soon: Callable[[Callable[[], None]], None], budgets: tuple[RetainedBudget, ...]) -> Store:
        return DiskStore(directory, call_soon, JournalSettings(budgets=budgets, **settings))  # type: ignore[arg-type]

    return open_journal


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(opener(tmp_path / "data"))
    yield engine
    engine.store.close()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Callable[[Path], DiskStore]]:
    """Opens what a crash at this moment would leave: a copy of the directory as it is on the disk."""
    opened: list[DiskStore] = []

    def open_copy(directory: Path) -> DiskStore:
        crashed = tmp_path / f"crashed-{len(opened)}"
        copy_as_crashed(directory, crashed)
        journal = DiskStore(crashed, lambda call: None)
        opened.append(journal)
        return journal

    yield open_copy
    for journal in opened:
        journal.close()


def _ignore() -> None:
    """A group was written in the background."""


def as_journal(engine: Engine) -> DiskStore:
    assert isinstance(engine.store, DiskStore)
    return engine.store


class TestJournal(DurableContract):
    pass


@pytest.mark.parametrize("durability", ["os", "none"])
class TestLessDurable(DurableContract):
    @pytest.fixture
    def engine(self, tmp_path: Path, durability: str) -> Iterator[Engine]:
        engine = Engine(opener(tmp_path / "data", durability=durability))
        yield engine
        engine.store.close()


# -- commit --------------------------------------------------------------------------------------------------------


def test_a_group_is_seen_only_once_it_is_durable(engine: Engine) -> None:
    engine.turn()
    engine.publish("a")
    assert engine.store.retained.get("a") is None
    reports: list[StoreError | None] = []
    assert engine.store.commit(reports.append) is False
    assert reports == []
    engine.calls.get(timeout=60)()
    assert reports == [None]
    assert engine.store.retained.get("a") is not None


def test_the_next_group_gathers_while_one_is_written(engine: Engine) -> None:
    engine.turn()
    engine.publish("a")
    reports: list[StoreError | None] = []
    assert engine.store.commit(reports.append) is False
    engine.publish("b")
    assert engine.store.group_bytes() > 0
    engine.calls.get(timeout=60)()
    assert names(retained_scan(engine.store, "#", "", 10)) == ["a"]
    engine.commit()
    assert names(retained_scan(engine.store, "#", "", 10)) == ["a", "b"]


def test_nothing_waits_for_what_need_not_be_durable(engine: Engine) -> None:
    assert engine.store.commit(lambda error: pytest.fail("called back"))
    engine.turn()
    engine.publish("a", qos=0, retain=False)
    engine.store.append(Connected("device", "", False, "MQTT 3.1.1", "127.0.0.1:1"))
    assert engine.store.commit(lambda error: pytest.fail("called back"))
    engine.reopen()
    assert engine.store.next_offset() == 3


def test_a_background_group_does_not_delay_one_that_is_waited_for(engine: Engine) -> None:
    engine.turn()
    for _ in range(100):
        engine.publish("a", qos=0, retain=False)
        engine.store.commit_in_background(_ignore)
    engine.publish("b")
    assert engine.commit() == []
    assert engine.store.retained.get("b") is not None
    assert engine.reopen().next_offset() == 102


def test_what_gathers_behind_a_background_group_is_not_written_at_its_completion(engine: Engine) -> None:
    engine.turn()
    for _ in range(5):
        engine.publish("a", qos=0, retain=False)
        engine.store.commit_in_background(_ignore)
        engine.publish("a", qos=0, retain=False)
        engine.calls.get(timeout=60)()
    assert engine.store.commit(lambda error: pytest.fail("called back"))
    assert engine.store.group_bytes() > 0
    assert len(list(as_journal(engine)._log.groups_from(1))) == 5


def test_a_background_commit_says_when_it_is_written_so_that_the_next_can_follow(engine: Engine) -> None:
    engine.turn()
    written: list[int] = []
    for count in (1, 2):
        engine.publish("a", qos=0, retain=False)
        engine.store.commit_in_background(lambda: written.append(len(list(as_journal(engine)._log.groups_from(1)))))
        assert len(written) == count - 1
        engine.calls.get(timeout=60)()
        assert written[-1] == count


def test_a_background_commit_leaves_alone_a_group_that_is_waited_for(engine: Engine) -> None:
    engine.turn()
    engine.publish("a")
    engine.store.commit_in_background(_ignore)
    reports: list[StoreError | None] = []
    assert engine.store.commit(reports.append) is False
    engine.calls.get(timeout=60)()
    assert reports == [None]


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [
        ({"recording": "everything"}, 4),
        ({"recording": "acknowledged"}, 2),
        ({"recording": "filters", "recording_filters": ("a/#",)}, 3),
    ],
)
def test_what_is_recorded_is_a_setting(tmp_path: Path, settings: dict[str, object], recorded: int) -> None:
    engine = Engine(opener(tmp_path / "data", **settings))
    engine.turn()
    first_offset = engine.store.next_offset()
    engine.publish("a/1", qos=0, retain=False)
    engine.publish("b", qos=0, retain=False)
    engine.publish("b", qos=1, retain=False)
    engine.publish("b", qos=0, retain=True)
    assert engine.store.next_offset() - first_offset == recorded
    engine.commit()
    engine.store.close()


# -- crashes -------------------------------------------------------------------------------------------------------


def test_what_was_committed_survives_a_crash_at_any_moment(
    engine: Engine, tmp_path: Path, copies: Callable[[Path], DiskStore]
) -> None:
    session = open_session(engine.store, "device", "", 3600)
    assert session.queue is not None
    for number in range(6):
        engine.turn()
        message = Publish(f"a/{number}", b"%d" % number, 1, True)
        offset = engine.store.append_publish(message, "publisher")
        session.queue.push(message, offset, 1, False)
        engine.commit()
        crashed = copies(tmp_path / "data")
        assert names(retained_scan(crashed, "#", "", 100)) == [f"a/{n}" for n in range(number + 1)]
        (found,) = crashed.sessions.load()
        assert found.queue is not None
        assert [queued.messages[0].payload for queued in found.queue.read(0, 100)] == [
            b"%d" % n for n in range(number + 1)
        ]


def test_a_lost_state_is_rebuilt_from_the_log(engine: Engine, tmp_path: Path) -> None:
    _fill(engine)
    before = _everything(engine.store)
    engine.store.close()
    shutil.rmtree(tmp_path / "data" / "state")
    engine.store = engine.opener(engine.calls.put, ())
    assert _everything(engine.store) == before


def test_a_rebuild_gives_the_same_state_and_tells_how_far_it_is(engine: Engine, tmp_path: Path) -> None:
    _fill(engine)
    before = _everything(engine.store)
    next_offset = engine.store.next_offset()
    engine.store.close()
    heard: list[tuple[int, int]] = []
    assert rebuild(tmp_path / "data", JournalSettings(), lambda done, total: heard.append((done, total))) == (
        next_offset - 1
    )
    assert heard[-1] == (next_offset - 1, next_offset - 1)
    engine.store = engine.opener(engine.calls.put, ())
    assert _everything(engine.store) == before


def test_a_state_ahead_of_its_log_can_be_rebuilt(engine: Engine, tmp_path: Path) -> None:
    engine.turn()
    engine.publish("a")
    engine.commit()
    engine.store.close()
    shutil.rmtree(tmp_path / "data" / "log")
    with pytest.raises(StateAhead, match="ember store rebuild"):
        engine.opener(engine.calls.put, ())
    rebuild(tmp_path / "data", JournalSettings())
    engine.store = engine.opener(engine.calls.put, ())
    assert engine.store.retained.totals() == (0, 0)


def test_a_message_on_its_way_is_not_removed_for_the_expired_one_before_it(engine: Engine) -> None:
    engine.turn()
    engine.publish("a", properties=expiring(1))
    engine.commit()
    engine.turn(2_000_000)
    engine.publish("a", b"new")
    reports: list[StoreError | None] = []
    assert not engine.store.commit(reports.append)
    assert engine.store.retained.expired(engine.now_us, 10) == []  # the group is closed, and not known to be applied
    while not reports:
        engine.calls.get(timeout=60)()
    assert engine.store.retained.expired(engine.now_us, 10) == []
    found = engine.store.retained.get("a")
    assert found is not None and found.payload == b"new"


CHILD = """
import os, sys
from pathlib import Path
from queue import SimpleQueue
from embermq.protocol.packets import Publish
from embermq.store.engines.disk import DiskStore

calls = SimpleQueue()
journal = DiskStore(Path(sys.argv[1]), calls.put)
number = 0
while True:
    journal.begin_turn(1_000_000 + number)
    for _ in range(3):
        journal.append_publish(Publish(f"a/{number % 50}", b"%d" % number, 1, True), "publisher")
        number += 1
    finished = []
    if not journal.commit(finished.append):
        while not finished:
            calls.get()()
    os.write(1, b"%d\\n" % number)
"""


def test_a_killed_process_has_lost_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    for lines in (1, 7, 40):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path / "data")], stdout=subprocess.PIPE)
        assert child.stdout is not None
        acknowledged = 0
        for _ in range(lines):
            acknowledged = int(child.stdout.readline())
        child.kill()
        acknowledged = int((child.stdout.read().splitlines() or [b"%d" % acknowledged])[-1])
        child.stdout.close()
        child.wait()
        journal = DiskStore(tmp_path / "data", lambda call: None)
        found = {retained.topic_name: int(retained.payload) for retained in retained_scan(journal, "#", "", 100)}
        journal.close()
        assert found
        for number in range(max(0, acknowledged - 50), acknowledged):
            assert found[f"a/{number % 50}"] >= number
        assert max(found.values()) < acknowledged + 3
        shutil.rmtree(tmp_path / "data")


# -- bad disks -----------------------------------------------------------------------------------------------------


class BadDisk:
    """Lets the system calls of the log fail until it is repaired; each that failed is put in `failures`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str, code: int) -> None:
        self.failures: SimpleQueue[str] = SimpleQueue()
        self.broken = True
        real = getattr(os, call)

        def failing(descriptor: int, *arguments: object) -> object:
            if self.broken:
                self.failures.put(call)
                raise OSError(code, os.strerror(code))
            return real(descriptor, *arguments)

        monkeypatch.setattr(os, call, failing)


@pytest.mark.parametrize(
    ("call", "code"),
    [("fdatasync", errno.EIO), ("pwrite", errno.ENOSPC), ("pwrite", errno.EROFS), ("fdatasync", errno.ENOSPC)],
)
def test_a_bad_disk_is_reported_and_nothing_acknowledged_until_it_recovers(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    engine.turn()
    engine.publish("before")
    engine.commit()
    disk = BadDisk(monkeypatch, call, code)
    engine.publish("during", b"1")
    reports: list[StoreError | None] = []
    assert engine.store.commit(reports.append) is False
    engine.calls.get(timeout=60)()
    assert len(reports) == 1 and os.strerror(code) in str(reports[0])
    assert os.strerror(code) in engine.store.failing()
    assert engine.store.retained.get("during") is None
    for _ in range(3):  # it is tried again and again, and not reported as durable
        assert disk.failures.get(timeout=60) == call
    assert engine.calls.empty()
    offset = engine.store.next_offset()
    assert engine.publish("live", qos=0, retain=False) == engine.store.next_offset() == offset
    disk.broken = False
    engine.calls.get(timeout=60)()
    assert reports[1:] == [None]
    assert engine.store.failing() == ""
    assert engine.store.retained.get("during") is not None
    engine.publish("after")
    assert engine.commit() == []
    assert len(list((tmp_path / "data" / "log").glob("*.log"))) > 1
    store = engine.reopen()
    assert names(retained_scan(store, "#", "", 10)) == ["after", "before", "during"]


def test_closing_on_a_bad_disk_ends_and_keeps_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(opener(tmp_path / "data"))
    engine.turn()
    engine.publish("before")
    engine.commit()
    disk = BadDisk(monkeypatch, "fdatasync", errno.EIO)
    engine.publish("during")
    reports: list[StoreError | None] = []
    assert engine.store.commit(reports.append) is False
    engine.calls.get(timeout=60)()
    engine.store.close()
    disk.broken = False
    assert None not in reports
    engine.store = engine.opener(engine.calls.put, ())
    assert "before" in names(retained_scan(engine.store, "#", "", 10))
    engine.store.close()


def test_a_state_that_takes_nothing_any_more_is_opened_again_and_caught_up(tmp_path: Path) -> None:
    database = BreakableDatabase()
    engine = Engine(opener(tmp_path / "data", state=StateSettings(open_database=database.open)))
    engine.turn()
    for number in range(20):
        engine.publish(f"a/{number}")
        engine.commit()
    assert len(retained_scan(engine.store, "#", "", 100)) == 20  # so the next group is not buffered
    database.broken = True
    engine.publish("b")
    next_offset = engine.store.next_offset()
    errors = engine.commit()
    assert [str(error) for error in errors] == ["the state cannot be written: IO error: No space left on device"]
    assert engine.store.failing() == ""
    assert engine.store.retained.totals()[0] == 21
    assert engine.store.retained.get("b") is not None
    assert engine.store.next_offset() == next_offset
    assert engine.reopen().next_offset() == next_offset
    engine.store.close()


def test_a_database_that_takes_nothing_is_noticed_when_what_is_buffered_is_written(tmp_path: Path) -> None:
    database = BreakableDatabase()
    engine = Engine(opener(tmp_path / "data", state=StateSettings(open_database=database.open, buffer_entries_max=100)))
    engine.turn()
    database.broken = True
    errors: list[StoreError] = []
    for number in range(100):
        engine.publish(f"a/{number % 70}")
        errors += engine.commit()
    assert [str(error) for error in errors] == ["the state cannot be written: IO error: No space left on device"]
    assert engine.store.failing() == ""
    assert engine.store.retained.totals()[0] == 70
    assert len(retained_scan(engine.store, "#", "", 100)) == 70
    assert engine.reopen().retained.totals()[0] == 70
    engine.store.close()


def test_a_state_on_a_full_disk_can_still_be_read(tmp_path: Path) -> None:
    database = BreakableDatabase()
    has_space = Event()
    settings = StateSettings(
        open_database=database.open,
        free_bytes=lambda directory: FLUSH_BYTES if has_space.is_set() else 0,
        buffer_entries_max=0,
    )
    engine = Engine(opener(tmp_path / "data", state=settings))
    engine.turn()
    engine.publish("a")
    engine.commit()
    database.broken = True
    engine.publish("b")
    reports: list[StoreError | None] = []
    assert engine.store.commit(reports.append) is False
    engine.calls.get(timeout=60)()
    assert len(reports) == 1 and reports[0] is not None
    assert names(retained_scan(engine.store, "#", "", 10)) == ["a", "b"]  # "b" is in the log
    has_space.set()
    engine.calls.get(timeout=60)()
    assert reports[1:] == [None]
    assert names(retained_scan(engine.store, "#", "", 10)) == ["a", "b"]
    engine.store.close()


# -- retention -----------------------------------------------------------------------------------------------------


def trimming_engine(tmp_path: Path) -> Engine:
    return Engine(opener(tmp_path / "data", segment_bytes=64 * 1024, retention_bytes=256 * 1024))


def _publish_much(engine: Engine, rounds: int, size: int = 4_000) -> None:
    """About `rounds` times 32 KiB in one topic, with everything that a shell would do for it."""
    for number in range(rounds):
        engine.turn(20_000_000)
        for _ in range(8):
            engine.publish("much", b"%d" % number + b"x" * size)
        engine.commit()
    for _ in range(100):  # trimming goes on by a piece with every group
        engine.store.append(RetainedRemoved("nothing", "a small group"))
        engine.commit()


def _log_bytes(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "data" / "log").glob("*.log"))


def test_the_log_is_trimmed_and_what_is_retained_stays(tmp_path: Path) -> None:
    engine = trimming_engine(tmp_path)
    engine.turn()
    engine.publish("old", b"set before everything that is kept")
    engine.commit()
    _publish_much(engine, 40)
    store = engine.reopen()
    assert _log_bytes(tmp_path) < 600 * 1024
    found = store.retained.get("old")
    assert found is not None and found.payload == b"set before everything that is kept"
    assert names(retained_scan(store, "#", "", 10)) == ["much", "old"]
    store.close()


def test_the_log_is_not_trimmed_past_what_a_session_is_owed(tmp_path: Path) -> None:
    engine = trimming_engine(tmp_path)
    engine.turn()
    session = open_session(engine.store, "device", "", 3600)
    assert session.queue is not None
    message = Publish("owed", b"still there", 1)
    session.queue.push(message, engine.store.append_publish(message, "publisher"), 1, False)
    engine.commit()
    _publish_much(engine, 20)
    (found,) = engine.reopen().sessions.load()
    assert found.queue is not None
    assert [queued.messages[0].payload for queued in found.queue.read(0, 10)] == [b"still there"]
    assert _log_bytes(tmp_path) > 600 * 1024
    found.queue.acknowledge(1)
    _publish_much(engine, 4)
    engine.store.close()
    assert _log_bytes(tmp_path) < 600 * 1024


def test_a_message_older_than_the_log_is_queued_as_a_copy(tmp_path: Path) -> None:
    engine = trimming_engine(tmp_path)
    engine.turn()
    message = Publish("old", b"published long ago", 1)
    offset = engine.store.append_publish(message, "publisher")
    session = open_session(engine.store, "device", "", 3600)
    engine.commit()
    _publish_much(engine, 12)
    assert session.queue is not None
    session.queue.push(message, offset, 1, False)
    engine.commit()
    (found,) = session.queue.read(0, 10)
    assert found.messages[0].payload == b"published long ago"
    engine.store.close()


def test_the_past_is_answered_from_the_logs_beginning_on(tmp_path: Path) -> None:
    engine = trimming_engine(tmp_path)
    first_us = engine.turn()
    engine.publish("constant", b"never changed")
    engine.publish("changed", b"first")
    engine.publish("cleared", b"first")
    engine.commit()
    _publish_much(engine, 12)
    middle_us = engine.turn()
    engine.publish("changed", b"second")
    engine.publish("cleared", b"")
    engine.commit()
    _publish_much(engine, 2)
    engine.reopen()
    journal = as_journal(engine)
    with pytest.raises(HistoryTrimmed) as trimmed:
        journal.history.as_of("#", "", 10, first_us)
    begins_us = trimmed.value.begins_us
    assert first_us < begins_us < middle_us
    for instant_us in (begins_us, middle_us - 1, middle_us, engine.now_us):
        found = {r.topic_name: r.payload for r in journal.history.as_of("#", "", 10, instant_us)}
        assert found["constant"] == b"never changed"
        assert found["changed"] == (b"first" if instant_us < middle_us else b"second")
        assert ("cleared" in found) == (instant_us < middle_us)
    journal.close()


def _fill(engine: Engine) -> None:
    """Something of everything."""
    store = engine.store
    session = open_session(store, "device", "user", 60)
    other = open_session(store, "other", "", 60)
    assert session.queue is not None
    for number in range(40):
        engine.turn()
        message = Publish(f"a/{number % 13}", b"%d" % number if number % 7 else b"", 1 + number % 2, True)
        offset = store.append_publish(message, "publisher")
        session.queue.push(message, offset, message.qos, False)
        if number == 20:
            session.queue.release(12)
            session.queue.acknowledge(10)
            store.append(Subscribed("device", session.session_id, SubscriptionRequest("a/#", 1), True))
            store.append(RetainedRemoved("a/3", "cleared"))
            store.append(SessionEnded(other.session_id, "other"))
        engine.commit()


def _everything(store: Store) -> object:
    assert isinstance(store, DiskStore)
    retained = [(r.topic_name, r.payload, r.offset, r.timestamp_us) for r in retained_scan(store, "#", "", 1_000_000)]
    past = [
        [(r.topic_name, r.payload, r.offset) for r in store.history.as_of("#", "", 100, 1_000_000 + 1_000 * at)]
        for at in range(0, 45, 3)
    ]
    sessions = [
        (
            s.client_id,
            s.subscriptions,
            [(p.topic_filter, p.before_offset) for p in s.positions],
            s.received_ids,
            [(q.sequence, q.messages[0], q.qos, q.released) for q in s.queue.read(0, 1000)] if s.queue else None,
        )
        for s in store.sessions.load()
    ]
    return retained, past, sessions, store.retained.totals()
