"""How much of the log is held, and for how long."""

from pathlib import Path

from embermq.http.log_holds import LogHolds
from embermq.store.interface import Segment


def test_the_log_from_a_segment_on_is_held() -> None:
    holds = LogHolds(
        [
            Segment(Path(), 1, 10, 0, 100, 5, 9),
            Segment(Path(), 10, 20, 0, 50, 10, 20),
            Segment(Path(), 20, 20, 0, 7),
        ]
    )
    assert holds.held(0) == (0, 0)
    assert holds.held(1) == holds.held(9) == (157, 5)
    assert holds.held(10) == (57, 10)
    assert holds.held(25) == (7, 0)
    assert LogHolds([]).held(3) == (0, 0)
