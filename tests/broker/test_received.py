"""Received QoS 2 identifiers: runs are released in parts, in any order, and over the end of another run."""

from random import Random

from embermq.broker.session import ReceivedIds, ReceivedRun


def parts(run: ReceivedRun | None) -> tuple[int, int, int] | None:
    return None if run is None else (run.packet_id, run.count, run.effect)


def test_a_run_is_released_in_parts() -> None:
    received = ReceivedIds()
    received.add(6, 4, 2)
    received.add(1, 5, 1)
    assert parts(received.take(1, 2)) == (1, 2, 1)
    assert received.ids() == [*range(3, 10)]
    assert parts(received.take(3, 9)) == (3, 3, 1), "the next ones are of another run"
    assert parts(received.take(7, 1)) == (7, 1, 2), "from the middle"
    assert received.ids() == [6, 8, 9]
    assert received.take(7, 1) is None
    assert received.take(10, 1) is None


def test_an_identifier_that_has_come_is_found() -> None:
    received = ReceivedIds()
    received.add(5, 3, 1)
    received.add(20, 1, 2)
    assert [received.has_any(first, 2) for first in (3, 4, 7, 8)] == [False, True, True, False]
    assert [received.has_any(first, 2) for first in (18, 19, 20, 21)] == [False, True, True, False]
    assert received.has_any(1, 100)


def test_runs_are_the_identifiers_that_they_stand_for() -> None:
    """Random runs that come and are released, against a dict."""
    random = Random(7)
    received, expected = ReceivedIds(), dict[int, int]()
    for effect in range(2_000):
        first, count = random.randint(1, 300), random.choice([1, 1, 2, 10])
        ids = range(first, first + count)
        if random.random() < 0.5:
            assert received.has_any(first, count) == any(packet_id in expected for packet_id in ids)
            if not received.has_any(first, count):
                received.add(first, count, effect)
                expected |= dict.fromkeys(ids, effect)
            continue
        run = received.take(first, count)
        assert (run is None) == (first not in expected)
        if run is not None:
            assert (run.packet_id, run.count) <= (first, count)
            assert {expected.pop(packet_id) for packet_id in range(first, first + run.count)} == {run.effect}
        assert received.ids() == sorted(expected)
