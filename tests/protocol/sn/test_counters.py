"""Counters under the names that `$SYS` shows."""

from embermq.protocol.sn.counters import SnCounters


def test_every_counter_is_shown_with_its_value() -> None:
    counters = SnCounters()
    counters.dropped_too_large = 3
    counts = counters.counts()
    assert len(counts) == 25
    assert counts["sn/dropped-too-large"] == 3
    assert sum(counts.values()) == 3
