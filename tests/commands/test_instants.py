"""Instants as people write them."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embermq.commands.options import past_instant_us
from embermq.commands.pipeline import app as pipeline
from embermq.errors import ConfigError
from embermq.instants import utc_seconds_text, utc_text

INSTANT_US = 1_769_864_587_250_000  # 2026-01-31T13:03:07.25Z


@pytest.fixture(autouse=True)
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> None:
    """The person who asks lives by a clock that is not UTC's."""
    if not Path("/usr/share/zoneinfo/America/New_York").exists():
        pytest.skip("no time zones here")
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    monkeypatch.setattr(time, "time_ns", lambda: (INSTANT_US + 10_000_000) * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-31T13:03:07.25Z",
        "2026-01-31T13:03:07.250000+00:00",
        "2026-01-31T14:03:07.25+01:00",
        "2026-01-31 13:03:07.25",  # UTC, wherever the person is
        "2026-01-31T13:03:07.25",
        "1769864587.25",
        " 1769864587.25 ",
        "10s",
        "10 s ago",
    ],
)
def test_every_way_to_write_an_instant(text: str) -> None:
    assert past_instant_us("--as-of", text) == INSTANT_US


def test_shorter_ways() -> None:
    assert past_instant_us("--as-of", "1769864587") == INSTANT_US - 250_000
    assert past_instant_us("--as-of", "15") == 15_000_000
    assert past_instant_us("--as-of", "2m") == INSTANT_US + 10_000_000 - 120_000_000
    assert past_instant_us("--as-of", "now") == INSTANT_US + 10_000_000
    assert past_instant_us("--as-of", "2026-01-31") == int(datetime(2026, 1, 31, tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e9", "2026-13-01", "2026-01-31T13:03:08+00:00x", "9" * 30, "٣٠"])
def test_what_is_no_instant_is_explained(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--as-of .*: expected an instant such as 2026-01-31T14:03:07Z"):
        past_instant_us("--as-of", text)


def test_the_future_is_not_known() -> None:
    assert past_instant_us("--as-of", "2026-01-31T13:03:17Z") == INSTANT_US + 9_750_000
    with pytest.raises(ConfigError, match="not in the future"):
        past_instant_us("--as-of", "2026-01-31T13:03:18Z")


def test_what_is_shown_is_understood() -> None:
    assert utc_text(INSTANT_US) == "2026-01-31T13:03:07.250000Z"
    assert past_instant_us("", utc_text(INSTANT_US)) == INSTANT_US
    assert utc_seconds_text(INSTANT_US) == "2026-01-31T13:03:07Z"
    assert past_instant_us("", utc_seconds_text(INSTANT_US)) == INSTANT_US - 250_000


def test_the_pipeline_refuses_an_instant_before_it_looks_for_a_lake_and_starts_spark() -> None:
    with pytest.raises(ConfigError, match="T tuesday: expected an instant such as"):
        CliRunner().invoke(pipeline, ["as-of", "tuesday"], catch_exceptions=False)
