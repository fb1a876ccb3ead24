"""The server's log lines that clients can cause, each kind at a bounded rate.

Owns: the wording of lines about refused packets, long queues and errors of our own.
"""

import logging
from typing import Final, final

from embermq.broker.admission import Refusal
from embermq.protocol.reasons import ReasonCode
from embermq.transport.http_log import http_log
from embermq.transport.rate_limited_log import RateLimitedLog, shown_name

logger: Final = logging.getLogger("embermq")

QUIET: Final = frozenset({ReasonCode.SUCCESS, ReasonCode.SERVER_SHUTTING_DOWN})
"""Reasons of an end that are logged at debug level."""
BUG_LINES_A_SECOND: Final = 5
"""How many errors of our own are logged with their trace in a second: a client that causes one can repeat it."""


@final
class ServerLog:
    """The lines of one server. `kinds` are its logs, and those that listeners add: `flush` flushes all."""

    __slots__ = ("_bugs", "_refusals", "ends", "kinds")

    def __init__(self) -> None:
        self.ends: Final = RateLimitedLog(logger, "disconnected clients")
        self._refusals: Final = RateLimitedLog(logger, "refused packets")
        self._bugs: Final = RateLimitedLog(logger, "internal errors", BUG_LINES_A_SECOND)
        self.kinds: Final = [self.ends, self._refusals, self._bugs, http_log]

    def flush(self) -> None:
        """Have the numbers of lines that were left out logged, where a second is over."""
        for kind in self.kinds:
            kind.flush()

    def begin(self, client_id: str, address: str) -> None:
        """A client has its session."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s connected from %s", shown_name(client_id), address)

    def end(self, reason: ReasonCode, client_id: str, address: str, detail: str) -> None:
        """The server has ended the connection of a client; the id is empty if it has not said one."""
        level = logging.DEBUG if reason in QUIET else logging.WARNING
        if logger.isEnabledFor(level):
            name = shown_name(client_id) if client_id else "a client"
            self.ends.log(level, "%s (%s) disconnected: %s", name, address, detail)

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
