"""Sessions in the state: what they are owed, in chunks, and what acknowledgements delete."""

from pathlib import Path

from embermq.store.log.records import SESSION_EXPIRY, SESSION_SEQUENCE, Group, Kind, queue_entry
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
    assert state.owed_offset() == 90
    acknowledge(state, sessions[1], 2)
    assert state.owed_offset() == 100
    acknowledge(state, sessions[0], 2)
    assert state.owed_offset() == 200
    acknowledge(state, sessions[0], 3)
    assert state.owed_offset() is None
    state.close()
