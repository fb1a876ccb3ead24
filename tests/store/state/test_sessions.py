"""Sessions in the state: what they are owed, in chunks, and what acknowledgements delete."""

from pathlib import Path

from embermq.store.interface import Queue
from embermq.store.log.queued_ids import IdRun, pack_runs
from embermq.store.records import SESSION, SESSION_EXPIRY, SESSION_SEQUENCE, queue_entry
from embermq.store.rows import Group, Kind
from embermq.store.state.state import State, StateSettings


def queued(group: Group, session_id: int, first_sequence: int, offsets: list[int]) -> None:
    entries = b"".join(queue_entry(offset, 1, False).to_bytes(8, "little") for offset in offsets)
    group.append(1, Kind.QUEUED, 0, b"", SESSION_SEQUENCE.pack(session_id, first_sequence) + entries, b"")


def acknowledge(state: State, session_id: int, sequence: int) -> None:
    group = Group(state.applied_offset() + 1)
    group.append(1, Kind.ACKNOWLEDGED, 0, b"", SESSION_SEQUENCE.pack(session_id, sequence), b"")
    state.apply(group)


def opened(group: Group, client_id: bytes) -> int:
    return group.append(1, Kind.SESSION_OPENED, 0, b"", SESSION_EXPIRY.pack(0, 1), client_id)


def owed_offset(state: State) -> int | None:
    return min((offset for offset in state.sessions.owed_offsets() if offset is not None), default=None)


def no_queue(session_id: int, acknowledged: int, last: int, released: set[int], has_ids: bool) -> Queue:
    raise AssertionError("nothing is to be loaded")


def test_a_queue_is_read_from_any_place_however_its_entries_are_cut_into_chunks(tmp_path: Path) -> None:
    state = State(tmp_path, settings=StateSettings(chunk_entries=4))
    group = Group(1)
    session_id = opened(group, b"c")
    queued(group, session_id, 1, list(range(100, 110)))
    queued(group, session_id, 11, list(range(110, 113)))
    state.apply(group)
    for after in range(13):
        for limit in (1, 5, 100):
            found = [entry >> 3 for entry in state.sessions.queue_entries(session_id, after, limit)]
            assert found == list(range(100 + after, 113))[:limit]
    state.close()


def test_acknowledged_entries_are_deleted_many_at_a_time(tmp_path: Path) -> None:
    state = State(tmp_path, settings=StateSettings(chunk_entries=2, clean_every=4))
    group = Group(1)
    session_id = opened(group, b"c")
    queued(group, session_id, 1, list(range(100, 110)))
    state.apply(group)

    def kept() -> list[int]:
        return [entry >> 3 for entry in state.sessions.queue_entries(session_id, 0, 100)]

    acknowledge(state, session_id, 3)
    assert kept() == list(range(100, 110))
    acknowledge(state, session_id, 4)
    assert kept() == list(range(104, 110))
    state.close()


def test_the_lowest_owed_offset_counts_every_session_and_no_acknowledged_message(tmp_path: Path) -> None:
    state = State(tmp_path)
    group = Group(10)
    sessions = [opened(group, b"c%d" % number) for number in range(3)]
    queued(group, sessions[0], 1, [300, 100, 200])
    queued(group, sessions[1], 1, [150, 90])
    state.apply(group)
    assert owed_offset(state) == 90
    acknowledge(state, sessions[1], 2)
    assert owed_offset(state) == 100
    acknowledge(state, sessions[0], 2)
    assert owed_offset(state) == 200
    acknowledge(state, sessions[0], 3)
    assert owed_offset(state) is None
    state.close()


def test_a_share_group_holds_the_log_back_and_is_no_session(tmp_path: Path) -> None:
    state = State(tmp_path)
    group = Group(10)
    queue_id = group.append(1, Kind.SHARED_QUEUE_OPENED, 0, b"$share/g/a", b"", b"")
    queued(group, queue_id, 1, [300, 100, 200])
    state.apply(group)
    assert owed_offset(state) == 100
    assert list(state.sessions.load(no_queue)) == []
    acknowledge(state, queue_id, 2)
    assert owed_offset(state) == 200
    ended = Group(state.applied_offset() + 1)
    ended.append(1, Kind.SHARED_QUEUE_ENDED, 0, b"$share/g/a", SESSION.pack(queue_id), b"")
    state.apply(ended)
    assert owed_offset(state) is None
    assert state.sessions.load_shared_queues(no_queue) == []
    assert len(state.sessions.queue_entries(queue_id, 0, 10)) == 0
    state.close()


def test_identifiers_are_deleted_with_the_entries_they_belong_to(tmp_path: Path) -> None:
    state = State(tmp_path, settings=StateSettings(chunk_entries=2, clean_every=4))
    group = Group(1)
    session_id = opened(group, b"c")
    entries = b"".join(queue_entry(offset, 1, False).to_bytes(8, "little") for offset in range(100, 110))
    head = SESSION_SEQUENCE.pack(session_id, 1)
    group.append(1, Kind.QUEUED, 0, b"", head + entries, b"", pack_runs([IdRun(1, 7, (5,))]))
    state.apply(group)
    assert state.sessions.queue_ids(session_id, 0, 10) == dict.fromkeys(range(2, 9), (5,))
    assert state.sessions.queue_ids(session_id, 4, 2) == {5: (5,), 6: (5,)}
    acknowledge(state, session_id, 5)
    assert state.sessions.queue_ids(session_id, 0, 10) == dict.fromkeys(range(5, 9), (5,))
    state.close()
