"""The view of the state that a checkpoint is written from does not change while it is read."""

from pathlib import Path

from embermq.store.rows import Kind
from embermq.store.state.state import State
from support.state_samples import write


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
