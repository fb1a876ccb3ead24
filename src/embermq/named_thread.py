"""Threads whose names the system knows.

Owns: the name of a thread in `top -H`, `ps -L` and a debugger, so that an operator sees what takes the time.
Never: what a thread does.

Python tells the system a thread's name from 3.14 on. On Linux a thread that such a thread starts, also one of a
library, has its name as well.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


class NamedThread(threading.Thread):
    """A daemon thread; the system shows the first 15 characters of its name."""

    def __init__(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)

    def run(self) -> None:
        with suppress(OSError):  # not on Linux, or nothing may be written there
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(self.name)
        super().run()
