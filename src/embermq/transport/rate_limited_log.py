"""A log that clients cannot flood: a bounded number of lines a second, each of bounded length.

Owns: how many lines were written in this second, and how many were left out. Every peer that reaches a
port can cause lines, so an event that a client can repeat at any rate is logged through here.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, final

LINES_A_SECOND: Final = 50
NAME_CHARACTERS_MAX: Final = 100
"""How many characters of a client identifier or topic are logged; each may have 65,535."""
LINE_CHARACTERS_MAX: Final = 600
"""How long a line may be. Details of errors can quote what a client sent: a user name, a topic filter."""


def shown_name(name: str) -> str:
    """A name that a client chose, for a log line: cut to a bounded length, and without line breaks or control codes."""
    return repr(name if len(name) <= NAME_CHARACTERS_MAX else name[:NAME_CHARACTERS_MAX] + "...")


def shown_line(line: str) -> str:
    """A line that may quote a client: cut to a bounded length, and without line breaks or control codes."""
    if len(line) > LINE_CHARACTERS_MAX:
        line = line[:LINE_CHARACTERS_MAX] + "..."
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)


@final
class RateLimitedLog:
    """Lines about one kind of event."""

    __slots__ = ("_logger", "_about", "_lines_a_second", "_now_s", "_second_began_s", "_lines")

    def __init__(
        self,
        logger: logging.Logger,
        about: str,
        lines_a_second: int = LINES_A_SECOND,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`about` names the lines where the number of those left out is logged: "refused packets"."""
        self._logger: Final = logger
        self._about: Final = about
        self._lines_a_second: Final = lines_a_second
        self._now_s: Final = now_s
        self._second_began_s = 0.0
        self._lines = 0  # of this second, written or left out

    def leaves_out(self) -> bool:
        """Whether there were too many lines in this second. Then the line counts as left out and need not be made."""
        self.flush()
        if self._lines < self._lines_a_second:
            return False
        self._lines += 1
        return True

    def log(self, level: int, line: str, *arguments: object, error: BaseException | None = None) -> None:
        """Write a line, and the trace of an error, or leave both out if there were too many in this second."""
        if not self._logger.isEnabledFor(level):
            return
        self.flush()
        self._lines += 1
        if self._lines <= self._lines_a_second:
            self._logger.log(level, "%s", shown_line(line % arguments), exc_info=error)

    def flush(self) -> None:
        """If a second has passed, write how many lines were left out. Without a call the next line does it."""
        now_s = self._now_s()
        if now_s - self._second_began_s < 1:
            return
        left_out = self._lines - self._lines_a_second
        if left_out > 0:
            self._logger.warning("%d more lines about %s were left out", left_out, self._about)
        self._second_began_s = now_s
        self._lines = 0
