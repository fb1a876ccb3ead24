"""The history: what was retained at an instant, at once and in pieces."""

from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest

from embermq.protocol.packets import Publish
from embermq.store.engines.disk import DiskStore
from embermq.store.engines.memory import MemoryStore
from embermq.store.errors import StoreError
from embermq.store.log.writer import Log
from embermq.store.rows import Group
from embermq.store.state.changes import STEPS_MAX
from embermq.store.state.history import PIECE_BYTES, PIECE_TOPICS
from embermq.store.state.retained_keys import history_key, key_topic
from embermq.store.state.state import State, StateSettings
from support.state_samples import changes_as_of, retained

FIRST_US = 1_000_000


def open_journal(directory: Path) -> tuple[DiskStore, "SimpleQueue[object]"]:
    calls: SimpleQueue[object] = SimpleQueue()
    return DiskStore(directory, calls.put), calls


def publish(journal: DiskStore, calls: "SimpleQueue[object]", now_us: int, messages: dict[str, bytes]) -> None:
    journal.begin_turn(now_us)
    for topic_name, payload in messages.items():
        journal.append_publish(Publish(topic_name, payload, 1, True), "c")
    finished: list[StoreError | None] = []
    assert not journal.commit(finished.append)
    while not finished:
        call = calls.get(timeout=60)
        assert callable(call)
        call()
    assert finished == [None]


def test_pieces_give_what_one_answer_gives(tmp_path: Path) -> None:
    journal, calls = open_journal(tmp_path / "data")
    topics = 3 * PIECE_TOPICS
    publish(journal, calls, FIRST_US, {f"a/{number:04}": b"old" for number in range(0, topics, 3)})
    publish(journal, calls, FIRST_US + 1, {f"a/{number:04}": b"new" for number in range(topics)})
    publish(journal, calls, FIRST_US + 2, {"a/0000": b""})
    for instant_us in range(FIRST_US - 1, FIRST_US + 3):
        pieces = list(journal.history.as_of_pieces("a/#", instant_us))
        assert len(pieces) >= topics // PIECE_TOPICS
        assert all(len(piece) <= PIECE_TOPICS for piece in pieces)
        found = [(kept.topic_name, kept.payload) for piece in pieces for kept in piece]
        at_once = journal.history.as_of("a/#", "", 10 * topics, instant_us)
        assert found == [(kept.topic_name, kept.payload) for kept in at_once]
    assert len(found) == topics - 1
    journal.close()


def test_pieces_find_an_instant_among_more_changes_than_are_read_at_once(tmp_path: Path) -> None:
    journal, calls = open_journal(tmp_path / "data")
    for change in range(2 * PIECE_TOPICS + 10):
        hot = {"b": b"" if change % 7 == 6 else b"%d" % change}
        others = {f"{name}/{change}": b"x" for name in "ac"} if change % 50 == 0 else {}
        publish(journal, calls, FIRST_US + change, hot | others)
    last_us = FIRST_US + 2 * PIECE_TOPICS + 9
    for instant_us in (FIRST_US - 1, FIRST_US, FIRST_US + 6, FIRST_US + PIECE_TOPICS + 3, last_us):
        for topic_filter in ("#", "b/#", "a/#", "b"):
            pieces = journal.history.as_of_pieces(topic_filter, instant_us)
            found = [(kept.topic_name, kept.payload) for piece in pieces for kept in piece]
            at_once = journal.history.as_of(topic_filter, "", 1_000, instant_us)
            assert found == [(kept.topic_name, kept.payload) for kept in at_once]
    rest = [kept.topic_name for piece in journal.history.as_of_pieces("#", last_us, "b") for kept in piece]
    assert rest and all(name.startswith("c/") for name in rest)
    journal.close()


def test_large_payloads_make_smaller_pieces(tmp_path: Path) -> None:
    journal, calls = open_journal(tmp_path / "data")
    half = bytes(PIECE_BYTES // 2)
    publish(journal, calls, FIRST_US, {f"a/{number}": half for number in range(6)})
    pieces = list(journal.history.as_of_pieces("#", FIRST_US))
    assert [len(piece) for piece in pieces] == [2, 2, 2]
    journal.close()


def test_memory_says_that_it_keeps_no_history() -> None:
    with pytest.raises(StoreError, match="no history"):
        MemoryStore().history.as_of("#", "", 1, FIRST_US)
    with pytest.raises(StoreError, match="no history"):
        MemoryStore().history.as_of_pieces("#", FIRST_US)


def test_an_instant_is_found_among_few_changes_and_among_many(tmp_path: Path) -> None:
    state = State(tmp_path)
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
        found = changes_as_of(state, "#", len(topics), 1_000 + instant)
        assert [(key_topic(change.key), change.timestamp_us) for change in found] == expected
    state.close()


def test_history_keys_sort_by_topic_then_time() -> None:
    rng = Random(5)
    parts = [b"a", b"\x00", b"\x01", b"\x02", b"b", b"\xc3\xbc"]
    keys = {b"".join(rng.choice(parts) for _ in range(rng.randint(1, 5))) for _ in range(200)}
    moments = [(key, at, at * 7) for key in keys for at in (0, 255, 256)]
    assert sorted(moments) == sorted(moments, key=lambda moment: history_key(*moment))


def test_the_history_tells_odd_topics_apart(tmp_path: Path) -> None:
    state = State(tmp_path)
    topics = [b"a", b"a/b", b"a\x01", b"a\x02", b"a\x01/\x02", b"/", b"a//b"]
    first, second = Group(1), Group(1 + len(topics))
    for topic in topics:
        retained(first, topic, b"1", timestamp_us=5)
        retained(second, topic, b"2", timestamp_us=9)
    state.apply(first)
    state.apply(second)
    found = changes_as_of(state, "#", 100, 7)
    assert sorted(key_topic(change.key).encode() for change in found) == sorted(topics)
    assert {change.timestamp_us for change in found} == {5}
    state.close()


CHANGES = 9


def changed_often(directory: Path, *, in_database: bool) -> tuple[State, Group]:
    """One topic whose changes are one series, between others."""
    state = State(directory, settings=StateSettings(forgotten_topics=2))
    group = Group(1)
    retained(group, b"a", b"before", 999)
    for change in range(CHANGES):
        retained(group, b"b", b"%d" % change, 1_000 + change)
    retained(group, b"b/c", b"after", 2_000)
    state.apply(group)
    if in_database:
        state.write_buffered()
    return state, group


def offsets_at(state: State, instant_us: int) -> list[int]:
    return [change.offset for change in changes_as_of(state, "b", 10, instant_us)]


@pytest.mark.parametrize("in_database", [True, False])
@pytest.mark.parametrize("kept", range(1, CHANGES + 1))
def test_a_series_is_forgotten_up_to_any_of_its_changes(tmp_path: Path, kept: int, in_database: bool) -> None:
    state, group = changed_often(tmp_path, in_database=in_database)
    before_offset = 2 + kept  # the change at 1_000 has offset 2
    for _ in state.forget([group], before_offset, 1_000 + kept - 1):
        pass
    for instant in range(kept - 1, CHANGES + 1):
        assert offsets_at(state, 1_000 + instant) == [2 + min(instant, CHANGES - 1)]
    [first, *rest] = changes_as_of(state, "b", 10, 1_000 + kept - 1)
    # Its record is gone with the log, unless it is retained still.
    assert bool(first.copy) == (kept < CHANGES)
    assert not rest
    assert [change.offset for change in changes_as_of(state, "b/c", 10, 2_000)] == [2 + CHANGES]
    state.close()


def test_the_last_change_of_a_series_is_copied_when_its_record_is_trimmed(tmp_path: Path) -> None:
    state, group = changed_often(tmp_path, in_database=True)
    newest = 2 + CHANGES - 1
    state.history.begin(newest + 1, 1_000 + CHANGES)
    later = Group(state.applied_offset() + 1)
    retained(later, b"b", b"later", 3_000)
    state.apply(later)
    [change] = changes_as_of(state, "b", 10, 2_999)
    assert (change.offset, change.copy[-1:]) == (newest, b"%d" % (CHANGES - 1))
    log = Log(tmp_path / "log", segment_bytes=1 << 20, segment_age_s=3_600, sync=False)
    log.append(group, 2_000)
    found = state.history.changes_of(log, "b", 0, 100)
    assert [change.offset for change in found] == [*range(2, newest + 1), later.first_offset]
    for _ in state.history.forget([group], newest + 1):
        pass
    assert offsets_at(state, 2_999) == [newest]
    assert offsets_at(state, 3_000) == [later.first_offset]
    assert [change.offset for change in state.history.changes_of(log, "b", 0, 100)] == [newest, later.first_offset]
    log.close()
    state.close()
