"""Instants that a command is asked for."""

import time

from embermq.errors import ConfigError
from embermq.store.instants import EXPECTED, instant_us


def past_instant_us(option: str, text: str) -> int:
    """The instant that an option names; ConfigError if it names none, or one that is yet to come."""
    now_us = time.time_ns() // 1000
    try:
        asked_us = instant_us(text, now_us)
    except ValueError:
        asked_us = -1
    if not 0 <= asked_us <= now_us:
        raise ConfigError(f"{option} {text}: expected {EXPECTED}, not in the future")
    return asked_us
