"""The log lines that clients can cause: a bounded number of each kind a second, each of bounded length.

Owns: how many lines were written in this second, how many were left out, and the wording of those of the server itself.
Every peer that reaches a port can cause lines, so an event that a client can repeat at any rate is logged through here.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, final

from embermq.broker.admission import Refusal
from embermq.protocol.reasons import ReasonCode

logger: Final = logging.getLogger("embermq")

LINES_A_SECOND: Final = 50
NAME_CHARACTERS_MAX: Final = 100
"""How many characters of a client identifier or topic are logged; each may have 65,535."""
LINE_CHARACTERS_MAX: Final = 600
"""How long a line may be. Details of errors can quote what a client sent: a user name, a topic filter."""
QUIET: Final = frozenset({ReasonCode.SUCCESS, ReasonCode.SERVER_SHUTTING_DOWN})
"""Reasons of an end that are logged at debug level."""
BUG_LINES_A_SECOND: Final = 5
"""How many errors of our own are logged with their trace in a second: a client that causes one can repeat it."""


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


http_log: Final = RateLimitedLog(logger, "HTTP connections")
"""About peers of HTTP listeners: of WebSockets, and of the operator's interface."""


@final
class ServerLog:
    """The lines of one server. `kinds` are its logs, and those that listeners add: `flush` flushes all."""

    def __init__(self) -> None:
        self.ends: Final = RateLimitedLog(logger, "disconnected clients")
        self._refusals: Final = RateLimitedLog(logger, "refused packets")
        self._bugs: Final = RateLimitedLog(logger, "internal errors", BUG_LINES_A_SECOND)
        self.kinds: Final = [self.ends, self._refusals, self._bugs, http_log]

    def flush(self) -> None:
        """Have the numbers of lines that were left out logged, where a second is over."""
        for kind in self.kinds:
            kind.flush()

    def begin(self, client_id: str, address: str, listener_name: str) -> None:
        """A client has its session."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s connected from %s (%s)", shown_name(client_id), address, listener_name)

    def end(self, reason: ReasonCode, client_id: str, address: str, listener_name: str, detail: str) -> None:
        """The server has ended the connection of a client; the id is empty if it has not said one."""
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        if logger.isEnabledFor(level):
            name = shown_name(client_id) if client_id else "a client"
            self.ends.log(level, "%s (%s, %s) disconnected: %s", name, address, listener_name, detail)

    def closed(self, line: str) -> None:
        """A connection was ended before it was one of MQTT, as the line says."""
        self.ends.log(logging.WARNING, "%s", line)

    def bug(self, error: Exception) -> None:
        """Something raised that no peer should be able to cause."""
        self._bugs.log(logging.ERROR, "internal error", error=error)

    def refusal(self, refusal: Refusal) -> None:
        """A client published or subscribed to what it may not, which 3.1.1 cannot tell it: say so in the log."""
        if self._refusals.leaves_out():  # one SUBSCRIBE may have thousands of topic filters that are refused
            return
        self._refusals.log(
            logging.WARNING,
            "%s of %s to %s refused: %s (0x%02X)",
            refusal.packet_name,
            shown_name(refusal.client_id),
            shown_name(refusal.topic),
            refusal.detail,
            refusal.reason,
        )

    def long_queue(self, client_id: str) -> None:
        """A session comes near the bound of its queue."""
        self._refusals.log(
            logging.WARNING,
            "the queue of %s keeps three fourths of limits.queue_log_bytes_max of the log; when it reaches the limit, "
            "new messages are dropped for it",
            shown_name(client_id),
        )
