"""The state: a view of the log that can be lost, cut at any batch, and caught up again."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from embermq.store.budgets import RetainedBudget
from embermq.store.errors import NewerSchema, StoreError
from embermq.store.log.records import RETAIN_FLAG, SESSION_EXPIRY, SESSION_SEQUENCE, Group, Kind, queue_entry
from embermq.store.replay import merged
from embermq.store.state import rocks as rocks_module
from embermq.store.state import state as state_module
from embermq.store.state.history import REFERENCE, STEPS_MAX, history_key
from embermq.store.state.retained_keys import key_topic
from embermq.store.state.rocks import Rocks
from embermq.store.state.state import State
from support.crashed_directory import copy_as_crashed


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    state = State(tmp_path / "state")
    yield state
    state.close()


def retained(group: Group, topic: bytes, payload: bytes, timestamp_us: int = 1_000) -> int:
    return group.append(timestamp_us, Kind.PUBLISH, 1 | RETAIN_FLAG, topic, payload, b"publisher")


def test_a_new_state_has_applied_nothing(state: State) -> None:
    assert state.applied_offset() == 0
    assert state.owed_offset() is None
    assert state.retained.totals() == (0, 0)


def test_records_that_were_applied_before_are_passed_over(state: State) -> None:
    group = Group(1)
    retained(group, b"a", b"12")
    retained(group, b"b", b"1")
    state.apply(group)
    state.apply(group)
    longer = Group(1)
    retained(longer, b"a", b"12")
    retained(longer, b"b", b"1")
    retained(longer, b"c", b"1")
    state.apply(longer)
    assert state.applied_offset() == 3
    assert state.retained.totals() == (3, 3 + 4)


def test_an_old_group_does_not_bring_back_what_was_cleared(state: State) -> None:
    first, second = Group(1), Group(2)
    retained(first, b"a", b"12")
    retained(second, b"a", b"")
    for group in (first, second, first):
        state.apply(group)
    assert state.retained.get("a") is None
    assert state.applied_offset() == 2


def test_a_newer_schema_is_refused_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "SCHEMA_VERSION", 2)
    State(tmp_path / "state").close()
    monkeypatch.undo()
    with pytest.raises(NewerSchema, match="has schema 2, this EmberMQ knows schemas up to 1"):
        State(tmp_path / "state")


def test_a_state_that_exists_is_opened_with_the_options_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks_module, "MEMTABLES_MAX", 5)
    monkeypatch.setattr(rocks_module, "BLOCK_CACHE_BYTES", 4 * 1024 * 1024)
    State(tmp_path / "state").close()
    monkeypatch.undo()
    state = State(tmp_path / "state")
    cache_bytes = state._rocks._use().property_int_value("rocksdb.block-cache-capacity")
    state.close()
    newest = max((tmp_path / "state").glob("OPTIONS-*"))
    assert cache_bytes == rocks_module.BLOCK_CACHE_BYTES
    assert f"max_write_buffer_number={rocks_module.MEMTABLES_MAX}\n" in newest.read_text()


def test_the_past_is_found_among_few_changes_and_among_many(state: State) -> None:
    topics = {f"a/{changes:02}": changes for changes in range(1, 3 * STEPS_MAX)}
    group = Group(1)
    for change in range(max(topics.values())):
        for topic_name, changes in topics.items():
            if change < changes:
                retained(group, topic_name.encode(), b"" if change % 5 == 4 else b"%d" % change, 1_000 + change)
    state.apply(group)
    for instant in range(-1, max(topics.values()) + 1):
        newest = {name: min(changes - 1, instant) for name, changes in topics.items()}
        expected = [(name, 1_000 + at) for name, at in newest.items() if at >= 0 and at % 5 != 4]
        found = state.changes_as_of("#", "", len(topics), 1_000 + instant)
        assert [(key_topic(change.key), change.timestamp_us) for change in found] == expected


def test_a_damaged_state_is_a_sentence_that_names_the_way_out(tmp_path: Path) -> None:
    State(tmp_path / "state").close()
    (tmp_path / "state" / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="ember store rebuild"):
        State(tmp_path / "state")


def test_a_write_that_would_wait_is_filled_and_tried_again(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stalling:
        """A database that wants to wait twice."""

        def __init__(self, real: object) -> None:
            self.real = real
            self.refused = 0

        def __getattr__(self, name: str) -> object:
            return getattr(self.real, name)

        def write(self, batch: object, options: object) -> None:
            if self.refused < 2:
                self.refused += 1
                raise Exception("Result incomplete: Write stall")
            self.real.write(batch, options)  # type: ignore[attr-defined]

    stalling = Stalling(state._rocks._db)
    monkeypatch.setattr(state._rocks, "_db", stalling)
    group = Group(1)
    retained(group, b"a", b"12")
    state.apply(group)
    monkeypatch.undo()
    assert stalling.refused == 2
    assert state.retained.totals() == (1, 3)


def test_a_write_gives_up_when_the_disk_never_keeps_up(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stalled:
        def write(self, batch: object, options: object) -> None:
            raise Exception("Result incomplete: Write stall")

    monkeypatch.setattr(rocks_module, "STALL_WAITS_MAX", 2)
    monkeypatch.setattr(state._rocks, "_db", Stalled())
    with pytest.raises(StoreError, match="does not keep up"):
        state._rocks.write(lambda batch: None)
    monkeypatch.undo()


def test_the_state_lasts_without_a_log_of_its_own_once_flushed(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    group = Group(1)
    retained(group, b"a", b"12")
    state.apply(group)
    state.flush(wait=True)
    later = Group(2)
    retained(later, b"b", b"12")
    state.apply(later)
    copy_as_crashed(tmp_path / "state", tmp_path / "crashed")  # the memtable is gone
    state.close()
    state = State(tmp_path / "crashed")
    assert state.applied_offset() == 1
    assert state.retained.totals() == (1, 3)
    state.apply(later)
    assert state.retained.totals() == (2, 6)
    state.close()


def test_a_flush_is_wanted_after_enough_records(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "FLUSH_RECORDS", 30)
    group = Group(1)
    for _ in range(20):
        group.append(1, Kind.PUBLISH, 0, b"a", b"x", b"")
    assert not state.wants_flush()
    state.apply(group)
    assert state.wants_flush()
    state.flush(wait=False)
    assert not state.wants_flush()


def test_iteration_shows_one_moment_whatever_is_applied_meanwhile(state: State) -> None:
    group = Group(1)
    for number in range(200):
        retained(group, b"a/%03d" % number, b"old")
    state.apply(group)
    seen = []
    iteration = state.retained.iterate("#")
    for message in iteration:
        if not seen:
            changes = Group(201)
            retained(changes, b"a/100", b"new")
            retained(changes, b"a/150", b"")
            retained(changes, b"a/999", b"new")
            state.apply(changes)
        seen.append((message.topic_name, message.payload))
    assert seen == [(f"a/{number:03d}", b"old") for number in range(200)]
    assert state.retained.totals()[0] == 200


def test_the_lowest_owed_offset_counts_every_session_and_no_acknowledged_message(state: State) -> None:
    group = Group(10)
    opened = [group.append(1, Kind.SESSION_OPENED, 0, b"", SESSION_EXPIRY.pack(0, 1), b"c%d" % n) for n in range(3)]
    for session_id, offsets in zip(opened[:2], ([300, 100, 200], [150, 90]), strict=True):
        entries = b"".join(queue_entry(offset, 1, False).to_bytes(8, "little") for offset in offsets)
        group.append(1, Kind.QUEUED, 0, b"", SESSION_SEQUENCE.pack(session_id, 1) + entries, b"")
    state.apply(group)
    assert state.owed_offset() == 90

    def acknowledge(session_id: int, sequence: int) -> None:
        group = Group(state.applied_offset() + 1)
        group.append(1, Kind.ACKNOWLEDGED, 0, b"", SESSION_SEQUENCE.pack(session_id, sequence), b"")
        state.apply(group)

    acknowledge(opened[1], 2)
    assert state.owed_offset() == 100
    acknowledge(opened[0], 2)
    assert state.owed_offset() == 200
    acknowledge(opened[0], 3)
    assert state.owed_offset() is None


def test_a_budget_that_is_new_counts_what_is_there(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    group = Group(1)
    retained(group, b"a/1", b"12")
    retained(group, b"a/2", b"12")
    retained(group, b"b", b"12")
    retained(group, b"$x", b"12")
    state.apply(group)
    state.close()
    budgets = (RetainedBudget("a/#", 5), RetainedBudget("#", 5))
    state = State(tmp_path / "state", budgets)
    assert state.retained.budget_totals() == [("a/#", 2, 10), ("#", 4, 17)]
    group = Group(5)
    retained(group, b"a/1", b"")
    state.apply(group)
    state.close()
    state = State(tmp_path / "state", budgets)
    assert state.retained.budget_totals() == [("a/#", 1, 5), ("#", 3, 12)]
    state.close()
    State(tmp_path / "state", budgets[1:]).close()
    state = State(tmp_path / "state", budgets)
    assert state.retained.budget_totals() == [("a/#", 1, 5), ("#", 3, 12)]
    state.close()


def test_history_keys_sort_by_topic_then_time(tmp_path: Path) -> None:
    rng = Random(5)
    parts = [b"a", b"\x00", b"\x01", b"\x02", b"b", b"\xc3\xbc"]
    keys = {b"".join(rng.choice(parts) for _ in range(rng.randint(1, 5))) for _ in range(200)}
    moments = [(key, at, at * 7) for key in keys for at in (0, 255, 256)]
    assert sorted(moments) == sorted(moments, key=lambda moment: history_key(*moment))


def test_the_history_tells_odd_topics_apart(tmp_path: Path) -> None:
    rocks = Rocks(tmp_path / "state")
    topics = [b"a", b"a/b", b"a\x01", b"a\x02", b"a\x01/\x02", b"/", b"a//b"]

    def fill(batch: object) -> None:
        for topic in topics:
            key = topic.replace(b"/", b"\x00")
            batch.put(history_key(key, 5, 1), REFERENCE)  # type: ignore[attr-defined]
            batch.put(history_key(key, 9, 2), REFERENCE)  # type: ignore[attr-defined]

    rocks.write(fill)
    found = state_module.changes_as_of(rocks, "#", b"", 100, 7)
    assert sorted(change.key.replace(b"\x00", b"/") for change in found) == sorted(topics)
    assert {change.offset for change in found} == {1}
    rocks.close()


def test_merged_groups_hold_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = []
    offset = 1
    for size in (1, 3, 2, 5, 1, 1):
        group = Group(offset)
        for number in range(size):
            group.append(offset + number, Kind.PUBLISH, number, b"t%d" % offset, b"p", b"c", b"q")
        offset += size
        groups.append(group)
    expected = [(t, k, f) for g in groups for t, k, f in zip(g.timestamps_us, g.kinds, g.flags, strict=True)]
    monkeypatch.setattr("embermq.store.replay.MERGED_RECORDS", 6)
    together = list(merged(groups))
    assert [len(group) for group in together] == [6, 6, 1]
    assert [group.first_offset for group in together] == [1, 7, 13]
    assert [(t, k, f) for g in together for t, k, f in zip(g.timestamps_us, g.kinds, g.flags, strict=True)] == expected
