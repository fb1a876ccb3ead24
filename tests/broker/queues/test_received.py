"""Received QoS 2 identifiers: runs are released in their order, and anything else parts them."""

from embermq.broker.queues.received import RUNS_MAX, ReceivedIds


def test_a_run_is_released_in_parts_and_over_the_end_of_another() -> None:
    received = ReceivedIds()
    received.add_run(1, 5, 1)
    received.add_run(6, 4, 2)
    assert received.release(1, 2, 2) == 2
    assert received.ids() == [*range(3, 10)]
    assert received.release(3, 9, 2) == 7
    assert received.ids() == []


def test_what_waits_for_a_newer_effect_or_is_not_next_stays() -> None:
    received = ReceivedIds()
    received.add_run(1, 5, 1)
    received.add_run(6, 4, 2)
    assert received.release(1, 9, 0) == 0
    assert received.release(2, 2, 2) == 0
    assert received.release(1, 9, 1) == 5
    assert received.parted() == {6: 2, 7: 2, 8: 2, 9: 2}
    assert received.release(6, 1, 2) == 0, "no run any more"


def test_an_identifier_that_has_come_is_found_in_runs_and_beside_them() -> None:
    received = ReceivedIds()
    received.add_run(5, 3, 1)
    assert [received.has_any(first, 2) for first in (3, 4, 7, 8)] == [False, True, True, False]
    received.parted()[20] = 2
    assert [received.has_any(first, 2) for first in (18, 19, 20, 21)] == [False, True, True, False]


def test_the_runs_are_bounded() -> None:
    received = ReceivedIds()
    for number in range(RUNS_MAX + 1):
        received.add_run(1 + 4 * number, 4, number)
    assert received.ids() == [*range(1, 4 * RUNS_MAX + 5)]
    assert received.release(1, 4, RUNS_MAX) == 0, "its run was parted"
    assert received.release(4 * RUNS_MAX + 1, 4, RUNS_MAX) == 4
