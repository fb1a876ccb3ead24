"""Instants as people write them, and as the log counts them: microseconds since 1970, UTC.

Owns: the one reading of a point in time for options, commands and functions.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGO: Final = re.compile(r"(\d+)\s*(s|m|h|d)\s+ago")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
EXPECTED: Final = "an ISO 8601 instant (2026-03-01T14:03:00Z; UTC if no zone is given), 'now', or '15m ago'"


def parse_instant(text: str, now: datetime | None = None) -> datetime:
    """An aware datetime in UTC; ValueError names what was expected."""
    moment = now or datetime.now(UTC)
    wanted = text.strip()
    if wanted == "now":
        return moment
    ago = _AGO.fullmatch(wanted)
    if ago:
        return moment - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        parsed = datetime.fromisoformat(wanted)
    except ValueError:
        raise ValueError(f"{text!r} is not {EXPECTED}") from None
    return in_utc(parsed)


def in_utc(instant: datetime) -> datetime:
    """The same instant in UTC; without a zone it is taken as UTC already."""
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)


def microseconds(instant: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (in_utc(instant) - EPOCH) // timedelta(microseconds=1)
