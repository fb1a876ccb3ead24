"""Replay: the state is brought up to the end of the log, or refused if it is ahead of it."""

import logging
from pathlib import Path

import pytest

from embermq.store.engines.replay import merged, replay
from embermq.store.errors import CheckpointMissing, StateAhead
from embermq.store.rows import Group, Kind
from embermq.store.state.state import State
from support.log_samples import open_log, row_of
from support.state_samples import retained


def test_merged_groups_hold_the_same_records() -> None:
    groups = []
    offset = 1
    for size in (1, 3, 2, 5, 1, 1):
        group = Group(offset)
        for number in range(size):
            group.append(offset + number, Kind.PUBLISH, number, b"t%d" % offset, b"p", b"c", b"q")
        offset += size
        groups.append(group)
    expected = [row_of(row) for group in groups for row in group.rows]
    together = list(merged(groups, 6))
    assert [len(group) for group in together] == [6, 6, 1]
    assert [group.first_offset for group in together] == [1, 7, 13]
    assert [row_of(row) for group in together for row in group.rows] == expected


def test_what_the_state_has_not_applied_is_applied_and_told(tmp_path: Path) -> None:
    log, state = open_log(tmp_path / "log"), State(tmp_path / "state")
    for number in range(5):
        group = Group(log.next_offset)
        retained(group, b"a/%d" % number, b"x")
        log.append(group, 1_000)
        if number < 2:
            state.apply(group)
    told: list[tuple[int, int]] = []
    replay(log, state, lambda done, total: told.append((done, total)), merged_records=2)
    assert state.applied_offset() == 5
    assert state.retained.totals()[0] == 5
    assert told == [(2, 3), (3, 3)]
    log.close()
    state.close()


def test_a_state_ahead_of_its_log_is_refused(tmp_path: Path) -> None:
    log, state = open_log(tmp_path / "log"), State(tmp_path / "state")
    group = Group(1)
    retained(group, b"a", b"x")
    state.apply(group)
    with pytest.raises(StateAhead, match="the state has applied offset 1, but the log ends before 1"):
        replay(log, state)
    log.close()
    state.close()


def test_a_log_that_begins_after_the_state_ends_is_refused_unless_the_loss_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, state = open_log(tmp_path / "log"), State(tmp_path / "state")
    for number in range(3):
        group = Group(log.next_offset)
        retained(group, b"a/%d" % number, b"x", timestamp_us=1_000 + number)
        log.append(group, 1_000)
        log.roll()
    log.trim(3)
    with pytest.raises(CheckpointMissing, match=r"the state lacks offsets 1 to 2, .* no undamaged checkpoint"):
        replay(log, state)
    with caplog.at_level(logging.WARNING):
        replay(log, state, accept_loss=True)
    assert "the log no longer has offsets 1 to 2" in caplog.text
    assert state.history.begins_us() == 1_002
    assert state.retained.totals()[0] == 1
    log.close()
    state.close()
