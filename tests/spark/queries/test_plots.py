"""Plots: ticks, labels and escaped names."""

from datetime import UTC, datetime

from embermq.spark.queries.plots import Point, bar_plot, duration, line_plot, time_ticks, value_ticks


def test_plots_have_round_ticks_and_escape_names() -> None:
    assert value_ticks(87) == [0, 25, 50, 75, 100]
    assert value_ticks(0) == [0.0, 1.0]
    first, last = datetime(2026, 1, 1, 10, 2, tzinfo=UTC), datetime(2026, 1, 1, 10, 58, tzinfo=UTC)
    assert [label for _, label in time_ticks(first, last)] == ["10:10", "10:20", "10:30", "10:40", "10:50"]
    assert duration(90) == "1.5 min"
    assert "<script>" not in bar_plot([("<script>", 3.0, "<b>")])
    drawn = line_plot([Point(first, 1.0), Point(last, 3.0)], "x")
    assert drawn.count("<polyline") == 1 and "nan" not in drawn
    assert "Nothing yet" in line_plot([], "x")
