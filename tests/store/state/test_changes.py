"""Series of changes: each of them is found as if it had a key of its own."""

from embermq.store.state.changes import changes_of_entry, each_change, entry_of_changes, last_change
from embermq.store.state.retained_keys import history_key
from embermq.store.state.retained_values import CLEARED, COPY, REFERENCE, SERIES

KEYS = [history_key(b"a", 1_000 + 10 * number, 1 + number) for number in range(7)]
CHANGES = [(key, REFERENCE) for key in KEYS]


def test_an_entry_gives_back_the_changes_it_was_made_of() -> None:
    for count in range(1, len(CHANGES) + 1):
        key, value = entry_of_changes(CHANGES[:count])
        assert key == KEYS[0]
        assert (value[:1] == SERIES) == (count > 1)
        assert changes_of_entry(key, value) == CHANGES[:count]
    assert changes_of_entry(KEYS[0], CLEARED) == [(KEYS[0], CLEARED)]


def test_the_last_change_up_to_an_instant_is_found() -> None:
    key, value = entry_of_changes(CHANGES)
    for instant_us in range(1_000, 1_000 + 10 * len(KEYS)):
        until = history_key(b"a", instant_us, 0xFFFF)
        assert last_change(key, value, until) == (KEYS[(instant_us - 1_000) // 10], REFERENCE)
    assert last_change(key, value, KEYS[3]) == CHANGES[3]
    assert last_change(KEYS[1], CLEARED, KEYS[3]) == (KEYS[1], CLEARED)


def test_of_a_change_and_its_copy_the_copy_counts() -> None:
    copied = (KEYS[2], COPY + b"message")
    entries = [entry_of_changes(CHANGES[:3]), copied, entry_of_changes(CHANGES[3:5]), (KEYS[5], CLEARED)]
    assert list(each_change(entries)) == [*CHANGES[:2], copied, *CHANGES[3:5], (KEYS[5], CLEARED)]
    assert list(each_change([])) == []
