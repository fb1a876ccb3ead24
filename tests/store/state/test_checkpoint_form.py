"""The view of the state that a checkpoint is written from: it does not change while it is read."""

from array import array
from pathlib import Path

import pytest

from embermq.store.log.queued_ids import IdRun, add_ids, pack_runs
from embermq.store.records import Acknowledged, Queued, Received, Record, SessionEnded, SessionOpened, queue_entry
from embermq.store.rows import Group, Kind
from embermq.store.state.state import State
from support.state_samples import write


def records_of(directory: Path, records: list[Record]) -> list[Record]:
    """What a view of a state has to which these were applied."""
    group = Group(1)
    for record in records:
        group.add(record.row(group.next_offset, 1_000))
    state = State(directory / "state")
    state.apply(group)
    view = state.view()
    found = [record for _, _, record in view.records()]
    del view
    state.close()
    return found


def test_a_view_stays_as_it_was(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    write(state, (b"a/1", b"old"), (b"a/2", b"old"))
    view = state.view()
    write(state, (b"a/1", b"new"), (b"a/2", b""), (b"a/3", b"new"))
    state.flush(wait=True)
    found = {row.topic: (row.offset, row.payload, row.kind) for row in view.rows(0)}
    assert found == {b"a/1": (1, b"old", Kind.PUBLISH), b"a/2": (2, b"old", Kind.PUBLISH)}
    del view
    state.close()


@pytest.mark.parametrize("acknowledged", range(4))
def test_a_view_has_the_entries_of_a_queue_until_all_are_acknowledged(acknowledged: int, tmp_path: Path) -> None:
    entries = array("Q", [queue_entry(offset, 1, False) for offset in (1, 2, 3)])
    ids: list[IdRun] = []
    add_ids(ids, 2, (7,))
    queued = Queued(5, 1, entries.tobytes(), pack_runs(ids))
    records: list[Record] = [SessionOpened(5, "c", "", 60), queued]
    if acknowledged:
        records.append(Acknowledged(5, acknowledged))
    found = records_of(tmp_path, records)
    assert (queued in found) == (acknowledged < 3)
    assert found[0] == records[0]


def test_a_view_has_nothing_of_a_session_that_has_ended(tmp_path: Path) -> None:
    """A key that was written after its end is there, and of no use."""
    records: list[Record] = [SessionOpened(5, "c", "", 60), SessionEnded(5, "c"), Received(5, "c", 9)]
    assert records_of(tmp_path, records) == []
