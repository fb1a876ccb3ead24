"""Sizes and durations as people write them in settings: 10GiB, 7d.

Owns: reading them. A number without a unit is bytes or seconds.
"""

import re
from typing import Final

SIZE_EXPECTED: Final = "a number of bytes, or a size such as 64KiB, 128MiB or 10GiB"
DURATION_EXPECTED: Final = "a number of seconds, or a duration such as 90s, 15m, 2h or 7d"
_TEXT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")
_SIZES: Final = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZES_DECIMAL: Final = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def size_bytes(text: str) -> int:
    """The number of bytes of a size; ValueError says what was expected."""
    return _read(text, _SIZES | _SIZES_DECIMAL, SIZE_EXPECTED)


def duration_s(text: str) -> int:
    """The number of seconds of a duration; ValueError says what was expected."""
    return _read(text, _SECONDS, DURATION_EXPECTED)


def _read(text: str, units: dict[str, int], expected: str) -> int:
    found = _TEXT.fullmatch(text)
    unit = units.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise ValueError(f"expected {expected}")
    number = float(found[1]) * unit if "." in found[1] else int(found[1]) * unit
    if number != int(number):
        raise ValueError(f"expected {expected}")
    return int(number)


def unit_of(key: str) -> str:
    """What the number of a setting counts, by its name: `bytes`, `s`, or nothing of these."""
    parts = key.split("_")
    return "bytes" if "bytes" in parts else "s" if parts[-1] == "s" else ""


def without_unit(key: str, value: str) -> int | str:
    """The value of a setting as a number; what is no size or duration is returned as it is."""
    try:
        match unit_of(key):
            case "bytes":
                return size_bytes(value)
            case "s":
                return duration_s(value)
    except ValueError:
        pass
    return value
