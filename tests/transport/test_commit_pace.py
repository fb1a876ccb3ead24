"""How long a commit group waits for more records (`CommitPace`)."""

from embermq.transport.commit_pace import BUSY, GATHER_US_MAX, GATHER_US_MIN, LOOK_S, SPARE, CommitPace


def test_no_group_waits_while_the_processor_has_time() -> None:
    pace = CommitPace()
    for _ in range(10):
        pace.adapt(BUSY - 0.01)
        pace.adapt(0.0)
    assert pace.gather_us == 0


def test_the_wait_grows_while_the_processor_is_busy_up_to_its_bound() -> None:
    pace = CommitPace()
    waits = []
    for _ in range(20):
        pace.adapt(BUSY + 0.01)
        waits.append(pace.gather_us)
    assert waits[0] == GATHER_US_MIN
    assert waits == sorted(waits)
    assert waits[-1] == GATHER_US_MAX


def test_the_wait_stays_between_the_two_bounds_and_ends_when_there_is_time_again() -> None:
    pace = CommitPace()
    for _ in range(5):
        pace.adapt(1.0)
    reached = pace.gather_us
    pace.adapt((BUSY + SPARE) / 2)
    assert pace.gather_us == reached
    for _ in range(20):
        pace.adapt(SPARE - 0.01)
    assert pace.gather_us == 0


def test_the_time_is_looked_at_seldom() -> None:
    pace = CommitPace()
    assert pace.look(1_000.0)
    assert not pace.look(1_000.0 + LOOK_S / 2)
    assert pace.look(1_000.0 + 2 * LOOK_S)
