"""Wills in the state: applied twice, of a session that is gone, and after a crash between two records."""

from pathlib import Path

from embermq.protocol.packets import Will
from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_SEQUENCE, WILL
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from embermq.store.state.state import State
from support.crashed_directory import copy_as_crashed


def will_set(group: Group, client_id: bytes, session_id: int, payload: bytes) -> None:
    group.append(1, Kind.WILL_SET, 1 | RETAIN_FLAG, b"w", WILL.pack(session_id, 5, 2) + b"me" + payload, client_id)


def test_a_will_replaces_the_one_before_in_the_same_group(tmp_path: Path) -> None:
    state = State(tmp_path)
    group = Group(1)
    will_set(group, b"c", 0, b"old")
    group.append(1, Kind.WILL_CLEARED, 0, b"", b"", b"c")
    will_set(group, b"c", 0, b"new")
    will_set(group, b"gone", 0, b"x")
    group.append(1, Kind.WILL_CLEARED, 0, b"", b"", b"gone")
    state.apply(group)
    (saved,) = state.sessions.load_wills()
    assert saved.will == Will("w", b"new", 1, True, 5)
    assert (saved.client_id, saved.user_name) == ("c", "me")
    state.close()


def test_a_will_outlives_its_session_until_it_is_cleared(tmp_path: Path) -> None:
    state = State(tmp_path)
    group = Group(1)
    session_id = group.append(1, Kind.SESSION_OPENED, 0, b"", SESSION_EXPIRY.pack(0, 60), b"c")
    will_set(group, b"c", session_id, b"x")
    group.append(77, Kind.DISCONNECTED, 0, b"", SESSION_SEQUENCE.pack(session_id, 0) + b"lost", b"c")
    state.apply(group)
    (saved,) = state.sessions.load_wills()
    assert (saved.session_id, saved.ended_us) == (session_id, 77)
    ended = Group(4)
    ended.append(99, Kind.SESSION_ENDED, 0, b"", SESSION.pack(session_id), b"c")
    state.apply(ended)
    (saved,) = state.sessions.load_wills()
    assert (saved.session_id, saved.ended_us) == (session_id, 0)
    state.close()


def test_a_clear_that_a_crash_took_from_the_state_is_applied_again(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    group = Group(1)
    will_set(group, b"c", 0, b"x")
    state.apply(group)
    state.flush(wait=True)
    cleared = Group(2)
    cleared.append(1, Kind.WILL_CLEARED, 0, b"", b"", b"c")
    state.apply(cleared)
    copy_as_crashed(tmp_path / "state", tmp_path / "crashed")  # the memtable is gone
    state.close()
    state = State(tmp_path / "crashed")
    assert len(state.sessions.load_wills()) == 1
    state.apply(cleared)
    assert state.sessions.load_wills() == []
    state.close()
