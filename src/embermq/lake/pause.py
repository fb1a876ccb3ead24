"""The pause: an operator stops a pipeline from applying more, and lets it go on. A lake at a URL has none.

Owns: the file that says so, which the pipeline looks at between batches. Who may write into the lake may pause it.
"""

import json
import time
from typing import Any, Final

from embermq.lake.errors import LakeError
from embermq.lake.files import json_object
from embermq.lake.lake import STATE_DIRECTORY, Lake

PAUSE_FILE: Final = f"{STATE_DIRECTORY}/pause.json"


def is_paused(lake: Lake) -> bool:
    """Whether the pipeline is to wait: the file is there, whatever is in it."""
    return lake.is_local and (lake.directory / PAUSE_FILE).exists()


def paused_by(lake: Lake) -> tuple[int, str] | None:
    """Since when (microseconds) and by whom the pipeline is paused; None if it is not."""
    if not is_paused(lake):
        return None
    found = json_object(_read(lake))
    since, by = found.get("since_us"), found.get("by")
    return (since if isinstance(since, int) else 0), (by if isinstance(by, str) else "")


def pause(lake: Lake, by: str) -> bool:
    """Have the pipeline wait from its next batch on; False if it does already."""
    _check(lake)
    if is_paused(lake):
        return False
    told: dict[str, Any] = {"since_us": time.time_ns() // 1000, "by": by}
    try:
        lake.files.write(PAUSE_FILE, json.dumps(told))
    except OSError as error:
        raise LakeError(f"{lake.place} cannot be paused: {error.strerror or error}") from None
    return True


def go_on(lake: Lake) -> bool:
    """Let the pipeline go on; False if it was not paused."""
    _check(lake)
    if not is_paused(lake):
        return False
    try:
        lake.files.remove(PAUSE_FILE)
    except OSError as error:
        raise LakeError(f"{lake.place} cannot go on: {error.strerror or error}") from None
    return True


def _check(lake: Lake) -> None:
    if not lake.is_local:
        raise LakeError(f"{lake.place} is at a URL: stop its pipeline instead (`ember pipeline run` goes on)")
    if not lake.exists():
        raise LakeError(f"{lake.place} is no lake: `ember pipeline run` makes one")


def _read(lake: Lake) -> str | None:
    try:
        return lake.files.read(PAUSE_FILE)
    except (OSError, ValueError):  # of another user, or not text
        return None
