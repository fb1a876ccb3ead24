"""A command of `ember` in a real terminal: a pseudo-terminal of the system."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

TIMEOUT_S = 60.0


def _own_terminal() -> None:
    """In the child: the terminal is its own, and Ctrl-C ends it even if it was started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A process whose input and output are a terminal of a size."""

    def __init__(self, arguments: Sequence[str | Path], columns: int = 80, rows: int = 24) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        clean = {name: value for name, value in os.environ.items() if not name.startswith("EMBERMQ_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "embermq", *map(str, arguments)],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            env={**clean, "TERM": "xterm-256color"},
            preexec_fn=_own_terminal,
        )
        os.close(inner)
        self.output = ""

    def read_until(self, text: str) -> str:
        """All output until a text has come, colours left out."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while text not in self.shown():
            assert time.monotonic() < deadline_s, self.shown()
            if select.select([self._terminal], [], [], 0.5)[0]:
                try:
                    data = os.read(self._terminal, 65_536)
                except OSError:  # it has ended
                    data = b""
                assert data, f"it ended: {self.shown()}"
                self.output += data.decode("utf-8", "replace")
        return self.shown()

    def read_rest(self) -> None:
        """All output of a process that has ended."""
        while select.select([self._terminal], [], [], 0.5)[0]:
            try:
                self.output += os.read(self._terminal, 65_536).decode("utf-8", "replace")
            except OSError:
                return

    def shown(self) -> str:
        """The output without escape sequences."""
        return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])", "", self.output)

    def press(self, text: str) -> None:
        """Type on the keyboard; \\x03 is Ctrl-C."""
        os.write(self._terminal, text.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)
