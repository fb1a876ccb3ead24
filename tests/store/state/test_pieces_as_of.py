"""Pieces of the retained set as of an instant: together they are the whole set, whatever their bounds."""

from pathlib import Path
from random import Random

import pytest

from embermq.protocol.topics import matches
from embermq.store.errors import HistoryTrimmed
from embermq.store.log.lookup import Records
from embermq.store.rows import Group, LogRow
from embermq.store.state.changes import OFFSET_MAX, STEPS_MAX
from embermq.store.state.retained_keys import topic_key
from embermq.store.state.state import State
from support.state_samples import retained

FILTERS = ("#", "a/#", "+/b", "a/b", "a", "+/+/c", "$s/#", "$s/a", "nothing/#", "d/#", "a/+")
LEVELS = ("a", "b", "c", "", "a\x01", "ü")


class RecordsOf(Records):
    """The records of some groups, as the log has them."""

    def __init__(self, groups: list[Group]) -> None:
        self._groups = groups

    def read(self, offset: int) -> LogRow | None:
        for group in self._groups:
            if group.first_offset <= offset < group.next_offset:
                return group.rows[offset - group.first_offset]
        return None


def all_pieces(
    state: State, log: Records, topic_filter: str, instant_us: int, before_offset: int, limit: int, bytes_max: int
) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    after_topic_name = ""
    for _ in range(10_000):
        piece = state.history.piece(log, topic_filter, instant_us, before_offset, after_topic_name, limit, bytes_max)
        assert len(piece.found()) <= limit
        found += [(message.topic_name, message.payload) for message in piece.found()]
        if piece.done:
            return found
        assert topic_key(piece.after_topic_name) > topic_key(after_topic_name) or not after_topic_name
        after_topic_name = piece.after_topic_name
    raise AssertionError("the pieces do not end")


@pytest.mark.parametrize("seed", range(6))
def test_pieces_of_any_size_are_the_whole_set(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    topics = ["$s/a", "$s/a/b", "d/often", "a", "a/b"]
    topics += ["/".join(rng.choice(LEVELS) for _ in range(rng.randint(1, 3))) for _ in range(60)]
    topics = [topic for topic in topics if topic]
    state = State(tmp_path)
    changes: list[tuple[int, int, str, bytes]] = []  # timestamp, offset, topic, payload
    groups: list[Group] = []
    offset = 1
    for instant in range(20):
        group = Group(offset)
        often = ["d/often"] * (3 * STEPS_MAX) if instant % 4 == 0 else []
        for topic in [*often, *rng.choices(topics, k=15)]:
            payload = b"" if rng.random() < 0.2 else b"%d" % offset * rng.randint(1, 30)
            retained(group, topic.encode(), payload, 1_000 + instant)
            changes.append((1_000 + instant, offset, topic, payload))
            offset += 1
        state.apply(group)
        groups.append(group)
    log = RecordsOf(groups)
    for _ in range(60):
        instant_us, topic_filter = 1_000 + rng.randint(-1, 20), rng.choice(FILTERS)
        before_offset = rng.choice((OFFSET_MAX, rng.randint(1, offset)))
        newest: dict[str, bytes] = {}
        for timestamp_us, at, topic, payload in changes:
            is_before = timestamp_us < instant_us or (timestamp_us == instant_us and at < before_offset)
            if is_before and matches(topic_filter, topic):
                newest[topic] = payload
        expected = [(topic, newest[topic]) for topic in sorted(newest, key=topic_key) if newest[topic]]
        limit, bytes_max = rng.choice((1, 2, 9, 64)), rng.choice((1, 100, 1 << 20))
        assert all_pieces(state, log, topic_filter, instant_us, before_offset, limit, bytes_max) == expected
    state.close()


def test_large_messages_of_the_past_make_small_pieces(tmp_path: Path) -> None:
    state = State(tmp_path)
    groups = [Group(1), Group(9)]
    for group, payload, instant_us in zip(groups, (bytes(1_000), b"x"), (1_000, 2_000), strict=True):
        for number in range(8):
            retained(group, b"a/%d" % number, payload, instant_us)
        state.apply(group)
    piece = state.history.piece(RecordsOf(groups), "#", 1_000, OFFSET_MAX, "", 64, 1_500)
    assert [len(message.payload) for message in piece.found()] == [1_000, 1_000], (
        "those of now say nothing of their size"
    )
    assert (piece.done, piece.after_topic_name) == (False, "a/1")
    state.close()


def test_a_set_that_is_forgotten_between_two_pieces_is_an_error(tmp_path: Path) -> None:
    state = State(tmp_path)
    group = Group(1)
    for number in range(8):
        retained(group, b"a/%d" % number, b"x", 1_000)
    state.apply(group)
    log = RecordsOf([group])
    piece = state.history.piece(log, "#", 1_000, OFFSET_MAX, "", 4, 1 << 20)
    assert not piece.done
    state.history.begin(9, 2_000)
    with pytest.raises(HistoryTrimmed):
        state.history.piece(log, "#", 1_000, OFFSET_MAX, piece.after_topic_name, 4, 1 << 20)
    state.close()
