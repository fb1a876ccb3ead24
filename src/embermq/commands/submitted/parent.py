"""The driver and the process that has submitted it: how the one is found, and ends with the other.

Owns: the file in which the driver leaves its process id, and the signal at the death of a parent, which Linux has.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

DRIVER_FILE: Final = "EMBER_DRIVER_FILE"
"""The environment variable with the file's path. A driver on another machine of a cluster does not have it."""

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent() -> None:
    """SIGTERM for this process when its parent has died, however that was."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def leave_process_id() -> None:
    """Tell the process that has submitted this driver, if it is here, where its signals go."""
    file = os.environ.get(DRIVER_FILE)
    if file is not None:
        with suppress(OSError):  # it has ended
            new = Path(f"{file}.new")
            new.write_text(str(os.getpid()))
            new.rename(file)
        end_with_parent()
