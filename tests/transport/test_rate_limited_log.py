"""Lines that clients cause are bounded, and what is left out is counted."""

import logging

import pytest

from embermq.transport.rate_limited_log import (
    LINE_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    RateLimitedLog,
    shown_name,
)

LOGGER = logging.getLogger("embermq.test")


def test_lines_beyond_the_number_are_left_out_and_counted_when_the_second_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = [100.0]
    log = RateLimitedLog(LOGGER, "refused packets", lines_a_second=3, now_s=lambda: now_s[0])
    with caplog.at_level(logging.WARNING, LOGGER.name):
        for number in range(10):
            log.log(logging.WARNING, "line %d", number)
        now_s[0] += 0.9
        log.log(logging.WARNING, "still the same second")
        log.flush()
        assert caplog.messages == ["line 0", "line 1", "line 2"]
        now_s[0] += 0.1
        log.flush()
        log.log(logging.WARNING, "a new second")
        now_s[0] += 5
        log.flush()
    assert caplog.messages[3:] == ["8 more lines about refused packets were left out", "a new second"]


def test_what_is_below_the_level_of_the_log_counts_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(LOGGER, "x", lines_a_second=1, now_s=lambda: 100.0)
    with caplog.at_level(logging.WARNING, LOGGER.name):
        log.log(logging.DEBUG, "not written")
        log.log(logging.WARNING, "written")
    assert caplog.messages == ["written"]


def test_a_name_is_cut_and_cannot_forge_a_line() -> None:
    assert shown_name("pump-7") == "'pump-7'"
    assert "\n" not in shown_name("a\nERROR forged") and "\x1b" not in shown_name("\x1b[2J")
    assert len(shown_name("x" * 65_535)) == NAME_CHARACTERS_MAX + len("'...'")


def test_a_line_is_cut_and_has_no_control_codes_whatever_it_quotes(caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(LOGGER, "x", now_s=lambda: 100.0)
    with caplog.at_level(logging.WARNING, LOGGER.name):
        log.log(logging.WARNING, "disconnected: %s", "user 100%\n\x1b[2J\u202e" + "x" * 262_000)
    [line] = caplog.messages
    assert line.startswith("disconnected: user 100%\\n\\x1b[2J\\u202exxx") and line.isprintable()
    assert len(line) < LINE_CHARACTERS_MAX + 50


def test_an_error_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(LOGGER, "x", now_s=lambda: 100.0)
    error = ZeroDivisionError()
    with caplog.at_level(logging.WARNING, LOGGER.name):
        log.log(logging.ERROR, "internal error", error=error)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
