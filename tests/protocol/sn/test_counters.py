"""Counters under the names that `$SYS` shows."""

from embermq.protocol.sn.counters import NAMES, SnCounters


def test_every_counter_is_shown_with_its_value() -> None:
    counters = SnCounters()
    counters.dropped_too_large = 3
    counts = counters.counts()
    assert len(counts) == len(NAMES)
    assert counts["sn/dropped-too-large"] == 3
    assert sum(counts.values()) == 3
