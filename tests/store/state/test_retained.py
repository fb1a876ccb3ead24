"""Retained messages in the state: what a write reads, what it counts, and what a reader is shown."""

from pathlib import Path

import pytest

from embermq.store.budgets import RetainedBudget
from embermq.store.records import SESSION
from embermq.store.rows import Group, Kind
from embermq.store.state.retained_sizes import Sizes
from embermq.store.state.state import State, StateSettings
from support.clauses import v311
from support.state_samples import WatchedDatabase, changes_as_of, retained, write


def opened(directory: Path, database: WatchedDatabase) -> State:
    return State(directory, settings=StateSettings(open_database=database.open))


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_topic_is_read_once_and_the_totals_stay_true(tmp_path: Path, is_empty: bool) -> None:
    watched = WatchedDatabase()
    state = opened(tmp_path, watched)
    if not is_empty:
        write(state, (b"c", b"1"))
        state.close()
        state = opened(tmp_path, watched)
    for messages in (
        [(b"a", b"1"), (b"b", b"22")],
        [(b"a", b"4444"), (b"a", b"333")],
        [(b"b", b"")],
        [(b"b", b"55555"), (b"a", b"")],
        [(b"a", b"")],
    ):
        write(state, *messages)
    assert watched.read == ([] if is_empty else [b"Ra", b"Rb"])  # what began empty has what was written, no more
    assert state.retained.totals() == ((1, 6) if is_empty else (2, 8))
    state.close()


@v311("MQTT-3.3.1-10")
def test_a_clear_takes_effect_though_two_topics_share_a_hash(tmp_path: Path) -> None:
    state = State(tmp_path, settings=StateSettings(make_sizes=lambda: Sizes(hash_of=lambda key: 7)))
    write(state, (b"a", b"1"))
    write(state, (b"b", b"2"))
    write(state, (b"b", b""))  # now "a" is taken for cleared as well
    write(state, (b"a", b""))
    assert state.retained.get("a") is None
    assert state.retained.get("b") is None
    state.close()


def test_a_new_process_reads_again(tmp_path: Path) -> None:
    watched = WatchedDatabase()
    state = opened(tmp_path, watched)
    write(state, (b"a", b"1"))
    state.close()
    state = opened(tmp_path, watched)
    write(state, (b"a", b"22"))
    write(state, (b"a", b"333"))
    assert watched.read == [b"Ra"]
    assert state.retained.totals() == (1, 4)
    state.close()


def test_a_message_whose_record_is_trimmed_is_read_for_the_history(tmp_path: Path) -> None:
    watched = WatchedDatabase()
    state = opened(tmp_path, watched)
    write(state, (b"a", b"old"), (b"b", b"old"))
    write(state, (b"b", b"newer"))
    state.write_buffered()
    state.history.begin(3, 1_000)
    watched.read.clear()
    write(state, (b"a", b"new"), (b"b", b"newest"))
    assert watched.read == [b"Ra"]
    [change] = changes_as_of(state, "a", 10, 1_001)
    assert change.copy.endswith(b"old")
    state.close()


def test_the_same_expiry_again_is_kept_also_in_a_group_that_deletes_a_range(tmp_path: Path) -> None:
    state = State(tmp_path, [RetainedBudget("#", 0, 0, 60)])
    for offset in (1, 2):
        group = Group(offset)
        retained(group, b"a", b"%d" % offset)
        if offset == 2:
            group.append(1_000, Kind.SESSION_ENDED, 0, b"", SESSION.pack(7), b"client")
        state.apply(group)
        state.write_buffered()
    assert state.retained.expired(1 << 60, 10) == ["a"]
    state.close()


def test_an_expiry_goes_with_its_message(tmp_path: Path) -> None:
    watched = WatchedDatabase()
    settings = StateSettings(open_database=watched.open, buffer_entries_max=0)
    state = State(tmp_path, [RetainedBudget("#", 0, 0, 60)], settings)
    write(state, (b"a", b"1"))
    assert state.retained.expired(1 << 60, 10) == ["a"]
    write(state, (b"a", b""))
    assert state.retained.expired(1 << 60, 10) == []
    assert watched.read == [b"Ra"]
    assert state.retained.totals() == (0, 0)
    state.close()


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


def test_messages_of_one_topic_are_counted_once_before_they_are_packed(tmp_path: Path) -> None:
    state = State(tmp_path, [RetainedBudget("a", 0, 0)])
    write(state, (b"a", b"1"), (b"b", b"1"), (b"a", b"22"))
    write(state, (b"a", b"333"))
    assert state.retained.totals() == (2, 4 + 2)
    assert state.retained.budget_totals() == [("a", 1, 4)]
    assert state.retained.size("a") == 4
    write(state, (b"a", b""), (b"c", b"1"))
    assert state.retained.totals() == (2, 2 + 2)
    assert state.retained.budget_totals() == [("a", 0, 0)]
    assert state.retained.size("a") == -1
    assert [found.topic_name for found in state.retained.piece("#", "", 10, 1_000, 10).found()] == ["b", "c"]
    state.close()
    state = State(tmp_path)
    assert state.retained.totals() == (2, 4)
    assert [found.topic_name for found in state.retained.piece("#", "", 10, 1_000, 10).found()] == ["b", "c"]
    state.close()


def test_the_message_of_one_topic_is_found_by_its_key(tmp_path: Path) -> None:
    state = State(tmp_path, [RetainedBudget("x", 0, 0, 60)])
    write(state, (b"a", b"1"), (b"a/b", b"2"), (b"x", b"3"))
    for _ in range(2):  # not packed yet, then in the database
        for topic_name, after, payloads in (("a", "", [b"1"]), ("a", "a", []), ("b", "", []), ("a/b", "a", [b"2"])):
            piece = state.retained.piece(topic_name, after, 10, 1_000, 10)
            assert ([found.payload for found in piece.found()], piece.done) == (payloads, True)
        assert [found.payload for found in state.retained.piece("x", "", 10, 1_000, 10, 1).found()] == [b"3"]
        assert state.retained.piece("x", "", 10, 1_000, 10, 1 << 60).found() == []
        state.write_buffered()
    state.close()


def test_expiries_are_found_before_they_are_packed(tmp_path: Path) -> None:
    state = State(tmp_path, [RetainedBudget("x/#", 0, 0, 60)])
    write(state, (b"a", b"1"))
    assert state.retained.expired(1 << 60, 10) == []
    write(state, (b"x/1", b"1"), (b"x/2", b"1"))
    assert state.retained.expired(1 << 60, 10) == ["x/1", "x/2"]
    write(state, (b"x/1", b""))
    assert state.retained.expired(1 << 60, 10) == ["x/2"]
    state.close()
