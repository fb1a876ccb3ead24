"""What a write knows of the message it replaces without reading it."""

from pathlib import Path
from random import Random

import pytest

from embermq.store.budgets import RetainedBudget
from embermq.store.log.records import RETAIN_FLAG, Group, Kind
from embermq.store.state import retained_sizes as sizes_module
from embermq.store.state.retained_sizes import ABSENT, SIZE_BITS, SIZE_MASK, UNKNOWN, Sizes, known
from embermq.store.state.rocks import Rocks
from embermq.store.state.state import State
from support.clauses import v311


def test_what_was_remembered_last_is_known_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes_module, "_SLOT_MASK", 15)  # so few slots that searches meet, and wrap around
    monkeypatch.setattr(sizes_module, "TOPICS_MAX", 14)
    random = Random(5)
    keys = [b"key%d" % number for number in range(20)]
    for _ in range(50):
        sizes, model = Sizes(), dict[bytes, int]()
        for _ in range(30):
            some = random.sample(keys[:14], random.randint(1, 3))
            values = [random.choice((UNKNOWN, ABSENT, known(random.randint(1, 9), 5))) for _ in some]
            if len(model.keys() | set(some)) + len(some) > 14:
                continue
            sizes.remember(some, values)
            model.update(zip(some, values, strict=True))
            assert sizes.look_up(keys) == [model.get(key, UNKNOWN) for key in keys]


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes_module, "TOPICS_MAX", 3)
    sizes = Sizes()
    sizes.remember([b"a", b"b", b"c"], [1, 2, 3])
    assert sizes.look_up([b"a", b"b", b"c"]) == [1, 2, 3]
    sizes.remember([b"d"], [4])
    assert sizes.look_up([b"a", b"b", b"c", b"d"]) == [UNKNOWN, UNKNOWN, UNKNOWN, 4]


def test_a_group_larger_than_the_table_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes_module, "TOPICS_MAX", 3)
    sizes = Sizes()
    sizes.remember([b"a"], [1])
    sizes.remember([b"b", b"c", b"d", b"e"], [2, 3, 4, 5])
    assert sizes.look_up([b"a", b"b", b"e"]) == [UNKNOWN, UNKNOWN, UNKNOWN]


def test_only_what_fits_is_known() -> None:
    assert known(7, SIZE_MASK) == 7 << SIZE_BITS | SIZE_MASK
    assert known(7, SIZE_MASK + 1) == UNKNOWN
    largest = (1 << 63 - SIZE_BITS) - 1
    sizes = Sizes()
    sizes.remember([b"a"], [known(largest, SIZE_MASK)])
    assert sizes.look_up([b"a"]) == [largest << SIZE_BITS | SIZE_MASK]
    assert known(largest + 1, 1) == UNKNOWN


def write(state: State, *messages: tuple[bytes, bytes]) -> None:
    group = Group(state.applied_offset() + 1)
    for topic, payload in messages:
        group.append(1_000 + group.first_offset, Kind.PUBLISH, 1 | RETAIN_FLAG, topic, payload, b"publisher")
    state.apply(group)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[list[bytes]]:
    asked: list[list[bytes]] = []
    get_many = Rocks.get_many

    def get_many_watched(self: Rocks, keys: list[bytes]) -> list[bytes | None]:
        asked.append(keys)
        return get_many(self, keys)

    monkeypatch.setattr(Rocks, "get_many", get_many_watched)
    return asked


def test_a_topic_is_read_once_and_the_totals_stay_true(tmp_path: Path, reads: list[list[bytes]]) -> None:
    state = State(tmp_path / "state")
    for messages in (
        [(b"a", b"1"), (b"b", b"22")],
        [(b"a", b"4444"), (b"a", b"333")],
        [(b"b", b"")],
        [(b"b", b"55555"), (b"a", b"")],
        [(b"a", b"")],
    ):
        write(state, *messages)
    assert [key for keys in reads for key in keys] == [b"Ra", b"Rb"]
    assert state.retained.totals() == (1, 6)
    state.close()


@v311("MQTT-3.3.1-10")
def test_a_clear_takes_effect_though_two_topics_share_a_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes_module, "hash", lambda key: 7, raising=False)
    state = State(tmp_path / "state")
    write(state, (b"a", b"1"))
    write(state, (b"b", b"2"))
    write(state, (b"b", b""))  # now "a" is taken for cleared as well
    write(state, (b"a", b""))
    assert state.retained.get("a") is None
    assert state.retained.get("b") is None
    state.close()


def test_a_new_process_reads_again(tmp_path: Path, reads: list[list[bytes]]) -> None:
    state = State(tmp_path / "state")
    write(state, (b"a", b"1"))
    state.close()
    state = State(tmp_path / "state")
    write(state, (b"a", b"22"))
    write(state, (b"a", b"333"))
    assert [key for keys in reads for key in keys] == [b"Ra", b"Ra"]
    assert state.retained.totals() == (1, 4)
    state.close()


def test_a_message_whose_record_is_trimmed_is_read_for_the_history(tmp_path: Path, reads: list[list[bytes]]) -> None:
    state = State(tmp_path / "state")
    write(state, (b"a", b"old"), (b"b", b"old"))
    write(state, (b"b", b"newer"))
    state.begin_history(3, 1_000)
    reads.clear()
    write(state, (b"a", b"new"), (b"b", b"newest"))
    assert [key for keys in reads for key in keys] == [b"Ra"]
    [change] = state.changes_as_of("a", "", 10, 1_001)
    assert change.copy.endswith(b"old")
    state.close()


def test_an_expiry_goes_with_its_message(tmp_path: Path, reads: list[list[bytes]]) -> None:
    state = State(tmp_path / "state", [RetainedBudget("#", 0, 0, 60)])
    write(state, (b"a", b"1"))
    assert state.retained.expired(1 << 60, 10) == ["a"]
    write(state, (b"a", b""))
    assert state.retained.expired(1 << 60, 10) == []
    assert [key for keys in reads for key in keys] == [b"Ra", b"Ra"]
    assert state.retained.totals() == (0, 0)
    state.close()
