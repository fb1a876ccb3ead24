"""Plots: ticks, labels and escaped names."""

from datetime import UTC, datetime

from embermq.lake.plots import (
    Point,
    Scale,
    bar_plot,
    duration,
    line_plot,
    log_ticks,
    time_ticks,
    value_ticks,
)


def test_plots_have_round_ticks_and_escape_names() -> None:
    assert value_ticks(87) == [0, 25, 50, 75, 100]
    assert value_ticks(0) == [0.0, 1.0]
    first, last = datetime(2026, 1, 1, 10, 2, tzinfo=UTC), datetime(2026, 1, 1, 10, 58, tzinfo=UTC)
    assert [label for _, label in time_ticks(first, last)] == ["10:10\n01 Jan 2026", "10:20", "10:30", "10:40", "10:50"]
    assert duration(90) == "1.5 min"
    assert "<script>" not in bar_plot([("<script>", 3.0, "<b>")])
    drawn = line_plot([Point(first, 1.0), Point(last, 3.0)], "x")
    assert drawn.count("<polyline") == 1 and "nan" not in drawn
    assert "Nothing yet" in line_plot([], "x")


def test_a_few_high_values_get_a_logarithmic_scale_that_shows_the_others() -> None:
    usual = Scale([10.0] * 20 + [20.0])
    assert not usual.is_logarithmic and usual.part(10) > 0.4
    burst = Scale([0.0] + [10.0] * 20 + [100_000.0])
    assert burst.is_logarithmic and burst.ticks == [1.0, 100.0, 10_000.0, 1_000_000.0]
    assert 0.1 < burst.part(10) < burst.part(100_000) <= 1 and burst.part(0) == 0
    assert "logarithmic" in bar_plot([("a", 1.0, ""), ("b", 1.0, ""), ("c", 1000.0, "")])
    assert log_ticks(3, 400) == [1.0, 10.0, 100.0, 1000.0]


def test_the_first_tick_of_each_day_has_its_date() -> None:
    first, last = datetime(2026, 1, 1, 20, tzinfo=UTC), datetime(2026, 1, 2, 6, tzinfo=UTC)
    labels = [label for _, label in time_ticks(first, last)]
    assert labels == ["20:00\n01 Jan 2026", "22:00", "00:00\n02 Jan", "02:00", "04:00", "06:00"]
