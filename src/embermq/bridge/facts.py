"""What an operator is told of a bridge."""

from dataclasses import dataclass
from typing import Literal, final

State = Literal["connecting", "connected", "waiting", "stopped"]


@final
@dataclass(slots=True)
class BridgeCounters:
    """Counted up on the thread of the bridge; readers see numbers that may be one message apart."""

    sent: int = 0
    acknowledged: int = 0
    received: int = 0
    refused: int = 0
    expired: int = 0
    too_large: int = 0
    loops: int = 0
    unmatched: int = 0
    lost: int = 0
    connections: int = 0
    failures: int = 0


@final
@dataclass(frozen=True, slots=True)
class BridgeFacts:
    """One bridge at one moment.

    `state` since `since_us`; `error`: why it is not connected, or the last thing that went wrong. `lag`: how many
    records of the log it has not passed. `in_flight`: messages that were sent and not acknowledged.
    """

    name: str
    address: str
    state: State
    since_us: int
    error: str
    lag: int
    in_flight: int
    counters: BridgeCounters

    def messages(self) -> dict[str, int]:
        """How many messages there were, by what became of them."""
        counters = self.counters
        return {
            "sent": counters.sent,
            "acknowledged": counters.acknowledged,
            "received": counters.received,
            "refused": counters.refused,
            "expired": counters.expired,
            "too-large": counters.too_large,
            "loops": counters.loops,
            "unmatched": counters.unmatched,
        }

    def counts(self) -> dict[str, int]:
        """The numbers, by what they are called below `$SYS/broker/bridges/NAME/`."""
        counters = self.counters
        return {
            "connected": int(self.state == "connected"),
            "lag": self.lag,
            "in-flight": self.in_flight,
            **self.messages(),
            "lost-records": counters.lost,
            "connections": counters.connections,
            "failures": counters.failures,
        }
