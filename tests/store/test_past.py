"""The past in pieces: the same answer as at once, with turns for others in between."""

from pathlib import Path
from queue import SimpleQueue

import pytest

from embermq.protocol.packets import Publish
from embermq.store.interface import StoreError
from embermq.store.journal import Journal
from embermq.store.memory import MemoryStore
from embermq.store.state.past import PIECE_BYTES, PIECE_TOPICS

FIRST_US = 1_000_000


def open_journal(directory: Path) -> tuple[Journal, "SimpleQueue[object]"]:
    calls: SimpleQueue[object] = SimpleQueue()
    return Journal(directory, calls.put), calls


def publish(journal: Journal, calls: "SimpleQueue[object]", now_us: int, messages: dict[str, bytes]) -> None:
    journal.begin_turn(now_us)
    for topic_name, payload in messages.items():
        journal.append_publish(Publish(topic_name, payload, 1, True), "c")
    finished: list[StoreError | None] = []
    assert not journal.commit(finished.append)
    while not finished:
        call = calls.get(timeout=30)
        assert callable(call)
        call()
    assert finished == [None]


def test_the_past_in_pieces_is_the_past_at_once(tmp_path: Path) -> None:
    journal, calls = open_journal(tmp_path / "data")
    topics = 3 * PIECE_TOPICS
    publish(journal, calls, FIRST_US, {f"a/{number:04}": b"old" for number in range(0, topics, 3)})
    publish(journal, calls, FIRST_US + 1, {f"a/{number:04}": b"new" for number in range(topics)})
    publish(journal, calls, FIRST_US + 2, {"a/0000": b""})
    for instant_us in range(FIRST_US - 1, FIRST_US + 3):
        pieces = list(journal.retained_as_of_pieces("a/#", instant_us))
        assert len(pieces) == topics // PIECE_TOPICS + 1
        assert all(len(piece) <= PIECE_TOPICS for piece in pieces)
        found = [(kept.topic_name, kept.payload) for piece in pieces for kept in piece]
        at_once = journal.retained_as_of("a/#", "", 10 * topics, instant_us)
        assert found == [(kept.topic_name, kept.payload) for kept in at_once]
    assert len(found) == topics - 1
    journal.close()


def test_large_payloads_make_smaller_pieces(tmp_path: Path) -> None:
    journal, calls = open_journal(tmp_path / "data")
    half = bytes(PIECE_BYTES // 2)
    publish(journal, calls, FIRST_US, {f"a/{number}": half for number in range(6)})
    pieces = list(journal.retained_as_of_pieces("#", FIRST_US))
    assert [len(piece) for piece in pieces] == [2, 2, 2, 0]
    journal.close()


def test_memory_says_that_it_keeps_no_history() -> None:
    with pytest.raises(StoreError, match="no history"):
        MemoryStore().retained_as_of("#", "", 1, FIRST_US)
    with pytest.raises(StoreError, match="no history"):
        MemoryStore().retained_as_of_pieces("#", FIRST_US)
