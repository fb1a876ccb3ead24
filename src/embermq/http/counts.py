"""Counts: what the HTTP interface has refused or ended, for `$SYS` and the metrics."""

from typing import final


@final
class HttpCounts:
    """The counts of all listeners of one server."""

    __slots__ = ("connections_closed", "connections_refused", "logins_failed", "streams_ended")

    def __init__(self) -> None:
        self.connections_refused = 0  # there was no place for them
        self.connections_closed = 0  # they waited, and others needed their place, or their request did not come in time
        self.logins_failed = 0
        self.streams_ended = 0  # answers that were not read

    def values(self) -> dict[str, int]:
        """For `$SYS/broker/`."""
        return {
            "http/connections/refused": self.connections_refused,
            "http/connections/closed": self.connections_closed,
            "http/logins/failed": self.logins_failed,
            "http/streams/ended": self.streams_ended,
        }
