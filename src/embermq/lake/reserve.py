"""The reserve of the lake's disk: a pipeline that runs on waits while too little is free.

Owns: when it waits, and the two log lines. The part of the disk is the store's. A lake at a URL has no bound here.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from embermq.store.engines.retention import DISK_PART, disk_bytes

RESERVE_BYTES: Final = 256 * 1024 * 1024
"""These are left free, but at most a part of the disk (DISK_PART): as the server's `store.disk_reserve_bytes`."""

logger: Final = logging.getLogger(__name__)


@final
class LakeReserve:
    """`directory` None: the lake is at a URL."""

    __slots__ = ("_directory", "_disk", "_is_reached")

    def __init__(self, directory: Path | None, disk: Callable[[Path], tuple[int, int]] = disk_bytes) -> None:
        self._directory: Final = directory
        self._disk: Final = disk
        self._is_reached = False

    def is_reached(self) -> bool:
        """Whether the pipeline has to wait for room; said in the log when that changes."""
        if self._directory is None:
            return False
        with suppress(OSError):
            total_bytes, free_bytes = self._disk(self._directory)
            reserve_bytes = min(RESERVE_BYTES, total_bytes // DISK_PART)
            is_reached = free_bytes < reserve_bytes
            if is_reached and not self._is_reached:
                logger.error(
                    "pipeline paused: the lake's disk has %d bytes free, less than the reserve of %d",
                    free_bytes,
                    reserve_bytes,
                )
            elif self._is_reached and not is_reached:
                logger.warning("the pipeline goes on: %d bytes of the lake's disk are free", free_bytes)
            self._is_reached = is_reached
        return self._is_reached
