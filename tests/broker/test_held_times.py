"""How long publishers were held back is forgotten slowly, and remembered for a bounded number of names."""

from embermq.broker.flow import FORGET_PART, HOLD_BACK_MAX_MS, HeldTimes


def test_what_was_added_is_forgotten_as_time_passes() -> None:
    times = HeldTimes()
    times.add("a", 6_000, 100_000)
    assert times.held_ms("a", 100_000) == 6_000
    assert times.held_ms("a", 100_000 + 6 * FORGET_PART) == 5_994
    assert times.held_ms("a", 200_000) == 0
    assert times.held_ms("b", 100_000) == 0


def test_it_is_used_up_with_what_has_not_been_added_yet() -> None:
    times = HeldTimes()
    times.add("a", 6_000, 0)
    assert not times.is_used_up("a", 0, 3_999)
    assert times.is_used_up("a", 0, 4_000)


def test_much_more_than_the_bound_is_not_remembered() -> None:
    times = HeldTimes()
    for _ in range(10):
        times.add("a", HOLD_BACK_MAX_MS, 0)
    assert times.held_ms("a", 0) == 2 * HOLD_BACK_MAX_MS


def test_the_name_that_was_changed_longest_ago_is_forgotten_first() -> None:
    times = HeldTimes(names_max=2)
    for name in ("a", "b", "a", "c"):
        times.add(name, 1_000, 0)
    assert len(times) == 2
    assert [times.held_ms(name, 0) for name in "abc"] == [2_000, 0, 1_000]
