"""The state: a view of the log that can be lost, cut at any batch, and caught up again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.store.errors import NewerSchema, StoreError
from embermq.store.rows import Group, Kind
from embermq.store.state.state import SCHEMA_VERSION, State, StateSettings
from support.crashed_directory import copy_as_crashed
from support.state_samples import BreakableDatabase, StallingDatabase, retained


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    state = State(tmp_path / "state")
    yield state
    state.close()


def test_a_new_state_has_applied_nothing(state: State) -> None:
    assert state.applied_offset() == 0
    assert list(state.sessions.owed_offsets()) == []
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


def test_a_newer_schema_is_refused_with_a_sentence(tmp_path: Path) -> None:
    State(tmp_path / "state", settings=StateSettings(schema_version=SCHEMA_VERSION + 1)).close()
    known = f"has schema {SCHEMA_VERSION + 1}, this EmberMQ knows schemas up to {SCHEMA_VERSION}"
    with pytest.raises(NewerSchema, match=known):
        State(tmp_path / "state")


def test_a_state_of_an_older_schema_is_taken_over_and_then_refused_by_the_older_server(tmp_path: Path) -> None:
    older = StateSettings(schema_version=1)
    State(tmp_path / "state", settings=older).close()
    State(tmp_path / "state").close()
    with pytest.raises(NewerSchema, match=f"has schema {SCHEMA_VERSION}, this EmberMQ knows schemas up to 1"):
        State(tmp_path / "state", settings=older)


def test_a_flush_is_wanted_after_enough_records(tmp_path: Path) -> None:
    state = State(tmp_path / "state", settings=StateSettings(flush_records=30))
    group = Group(1)
    for _ in range(20):
        group.append(1, Kind.PUBLISH, 0, b"a", b"x", b"")
    assert not state.wants_flush()
    state.apply(group)
    assert state.wants_flush()
    state.flush(wait=False)
    assert not state.wants_flush()
    state.close()


def test_a_group_that_had_to_wait_is_counted_once(tmp_path: Path) -> None:
    database = StallingDatabase(stalls=0)
    state = State(tmp_path / "state", settings=StateSettings(open_database=database.open))
    database.stalls = 2
    group = Group(1)
    retained(group, b"a", b"12")
    state.apply(group)
    assert database.stalls == 0
    assert state.retained.totals() == (1, 3)
    state.close()


def plain(first_offset: int, records: int) -> Group:
    """A group of messages that change nothing in the state."""
    group = Group(first_offset)
    for _ in range(records):
        group.append(1, Kind.PUBLISH, 1, b"a", b"x", b"")
    return group


def test_a_group_that_changes_nothing_is_not_written(tmp_path: Path) -> None:
    database = BreakableDatabase()
    settings = StateSettings(open_database=database.open, flush_records=50, buffer_entries_max=0)
    state = State(tmp_path / "state", settings=settings)
    database.broken = True  # takes no write
    state.apply(plain(1, 30))
    assert state.applied_offset() == 30
    with pytest.raises(StoreError):
        state.apply(plain(31, 30))  # a flush is due
    assert state.applied_offset() == 30
    state.reopen(lambda state: state.apply(plain(1, 30)))
    state.apply(plain(31, 30))
    assert state.applied_offset() == 60
    assert state.wants_flush()
    state.close()


def test_after_a_crash_only_groups_that_changed_nothing_are_passed_over_again(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    state.apply(plain(1, 3))
    changing = Group(4)
    retained(changing, b"a", b"12")
    state.apply(changing)
    state.flush(wait=True)
    state.apply(plain(5, 3))
    copy_as_crashed(tmp_path / "state", tmp_path / "before_flush")
    state.flush(wait=True)
    copy_as_crashed(tmp_path / "state", tmp_path / "after_flush")
    state.apply(plain(8, 3))
    state.close()
    for directory, applied in (("before_flush", 4), ("after_flush", 7), ("state", 10)):
        state = State(tmp_path / directory)
        assert state.applied_offset() == applied
        assert state.retained.totals() == (1, 3)
        state.apply(plain(5, 6))
        assert state.applied_offset() == 10
        state.close()
