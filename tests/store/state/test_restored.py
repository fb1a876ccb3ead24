"""A state that was made from a checkpoint is the one that the checkpoint was taken of."""

from pathlib import Path

import pytest

from embermq.store.budgets import RetainedBudget
from embermq.store.log.checkpoint import Checkpoint, CheckpointWriter
from embermq.store.state.state import State
from support.state_samples import write

BUDGETS = (RetainedBudget("a/#", count_max=10), RetainedBudget("e/#", expiry_s=60))


def save(state: State, directory: Path) -> Checkpoint:
    """A checkpoint of all that a state has applied."""
    directory.mkdir(exist_ok=True)
    writer = CheckpointWriter(directory, state.applied_offset() + 1, 5_000)
    for row in state.view().rows(5_000):
        writer.add(row)
    writer.finish()
    return Checkpoint(directory, state.applied_offset() + 1)


def everything(state: State) -> object:
    retained = [
        (r.topic_name, r.payload, r.qos, r.properties, r.offset, r.timestamp_us, r.client_id, r.expires_us)
        for r in state.retained.piece("#", "", 1_000, 1 << 20, 1_000).found()
    ]
    return retained, state.retained.totals(), state.retained.budget_totals(), state.retained.expired(10**15, 100)


def test_retained_messages_totals_and_expiries_are_the_same(tmp_path: Path) -> None:
    one, other = State(tmp_path / "one", BUDGETS), State(tmp_path / "other", BUDGETS)
    write(one, (b"a", b"1"), (b"a/b", b"22"), (b"e/x", b"333"), (b"gone", b"4"))
    write(one, (b"gone", b""), (b"a", b"55"))
    write(other, (b"stale", b"of an earlier life"))
    other.restore(save(one, tmp_path / "log"))
    assert everything(other) == everything(one)
    assert other.applied_offset() == one.applied_offset() == 6
    assert other.history.begins_us() == 5_000
    # What follows is counted as if nothing had happened.
    for state in (one, other):
        write(state, (b"a", b"666"), (b"a/b", b""), (b"e/y", b"7"))
    assert everything(other) == everything(one)
    one.close()
    other.close()


def test_a_crash_in_between_leaves_a_state_that_has_applied_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = State(tmp_path / "one")
    write(one, *((b"a/%d" % number, b"x") for number in range(1_200)))
    checkpoint = save(one, tmp_path / "log")
    one.close()
    torn = checkpoint.path.read_bytes()
    checkpoint.path.write_bytes(torn[:-1])
    other = State(tmp_path / "other")
    write(other, (b"before", b"x"))
    with pytest.raises(Exception, match="the log is damaged"):
        other.restore(Checkpoint(tmp_path / "log", checkpoint.offset))
    other.close()
    other = State(tmp_path / "other")
    assert other.applied_offset() == 0
    checkpoint.path.write_bytes(torn)
    other.restore(Checkpoint(tmp_path / "log", checkpoint.offset))
    assert other.retained.totals()[0] == 1_200
    other.close()
