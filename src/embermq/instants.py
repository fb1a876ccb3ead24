"""Instants as text; the log counts microseconds since 1970, UTC.

Owns: reading an instant, for commands, options and functions, and writing it for programs and for people.
"""

import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EXPECTED: Final = (
    "an instant such as 2026-01-31T14:03:07Z (UTC unless it names a zone), 1769864587 (seconds since 1970),"
    " 15m (ago; s, m, h, d) or now"
)
NOW: Final = "now"
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_AGO: Final = re.compile(r"([0-9]+) *([smhd])( +ago)?")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def instant_us(text: str, now_us: int | None = None) -> int:
    """The microseconds since 1970 of a text; ValueError says what was expected.

    Without a zone it is UTC: a query on a cluster must not depend on the time zone of one machine.
    """
    if now_us is None:
        now_us = time.time_ns() // 1000
    wanted = text.strip()
    ago = _AGO.fullmatch(wanted)
    try:
        if ago:
            return now_us - int(ago[1]) * _UNIT_S[ago[2]] * 1_000_000
        if _SECONDS.fullmatch(wanted):
            return microseconds(EPOCH + timedelta(microseconds=int(Decimal(wanted) * 1_000_000)))
        return now_us if wanted == NOW else microseconds(datetime.fromisoformat(wanted))
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not {EXPECTED}") from None


def in_utc(instant: datetime) -> datetime:
    """The same instant in UTC; without a zone it is taken as UTC already."""
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def microseconds(instant: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (in_utc(instant) - EPOCH) // timedelta(microseconds=1)


def utc_text(instant_us: int) -> str:
    """In UTC, for programs."""
    return (EPOCH + timedelta(microseconds=instant_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def utc_seconds_text(instant_us: int) -> str:
    """In UTC to the second, where a table has little room."""
    return (EPOCH + timedelta(microseconds=instant_us)).strftime("%Y-%m-%dT%H:%M:%SZ")
