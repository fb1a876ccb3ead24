"""Instants as people write and read them; inside they are microseconds since 1970, UTC."""

import re
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from embermq.errors import ConfigError

EXPECTED: Final = (
    "expected a time of the past such as 2026-01-31T14:03:07 (local time), 2026-01-31T14:03:07+01:00,"
    " 1769864587 (seconds since 1970) or 15m (ago; s, m, h, d)"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_AGO: Final = re.compile(r"([0-9]+)([smhd])")
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def past_instant_us(option: str, text: str) -> int:
    """An instant that is over, given by a date and time, by seconds since 1970, or by how long ago it was."""
    now_us = time.time_ns() // 1000
    try:
        instant_us = _instant_us(text.strip(), now_us)
    except (ValueError, OverflowError):
        raise ConfigError(f"{option} {text}: {EXPECTED}") from None
    if not 0 <= instant_us <= now_us:
        raise ConfigError(f"{option} {text}: {EXPECTED}")
    return instant_us


def _instant_us(text: str, now_us: int) -> int:
    ago = _AGO.fullmatch(text)
    if ago:
        return now_us - int(ago[1]) * _UNIT_S[ago[2]] * 1_000_000
    if _SECONDS.fullmatch(text):
        return int(Decimal(text) * 1_000_000)
    # Without a zone it is the time on the wall of whoever asks.
    instant = datetime.fromisoformat(text).astimezone(UTC)
    return (instant - _EPOCH) // timedelta(microseconds=1)


def utc_text(instant_us: int) -> str:
    """For programs."""
    return (_EPOCH + timedelta(microseconds=instant_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def local_text(instant_us: int) -> str:
    """For people; what it gives is understood again, zone and all."""
    return (_EPOCH + timedelta(microseconds=instant_us)).astimezone().isoformat(timespec="microseconds")
