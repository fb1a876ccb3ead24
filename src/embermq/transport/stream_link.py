"""A client on a byte stream, as the server and the parts of its connection see it, and why it is not read from.

Owns: the calls to a `StreamConnection`, which knows the server; the server does not know the class. The reasons not to
read from a client, as bits of a number: each ends by itself, and the client is read from again when none is left. The
rates of one client (`limits.client_publish_rate_max`, `limits.client_bytes_rate_max`): a client above them loses
nothing, what it sends waits in the network.
"""

from abc import abstractmethod
from typing import Final, final

from embermq.broker.access import Identity
from embermq.broker.limits import Limits
from embermq.broker.rates import Bucket
from embermq.broker.session import ClientLink
from embermq.protocol.errors import PeerError, Refused
from embermq.protocol.packets import Connect
from embermq.transport.listener import Listener

OPENING: Final = 1
"""Its CONNECT is not answered yet."""
DISK: Final = 2
"""Too much is pending: of all clients, or of answers to this one."""
UNREAD: Final = 4
"""It leaves the answers to what it sent unread."""
TURN: Final = 8
"""It has sent much in this turn, and other clients come next."""
FULL: Final = 16
"""It publishes to a client whose queue is full (`broker.flow`)."""
RATE: Final = 32
"""It has sent more than its rate allows."""

WAITING_MAX: Final = 10_000
"""How many answers to one client may be pending: a group's size counts records, and not every answer has one."""
METERED_SHARE_BYTES: Final = 4 * 1024
"""How many bytes of a client with a rate are processed at a time, by which it may exceed the rate in a burst."""
PAUSE_MS_MAX: Final = 1_000
"""A longer pause is made of several. After each the client counts as heard: it has sent what is not read."""

# TURN is not shown: it lasts for one turn.
_NAMES: Final = {
    OPENING: "opening",
    DISK: "disk",
    UNREAD: "unread answers",
    FULL: "full queue of a receiver",
    RATE: "rate",
}


def pause_names(reasons: int) -> list[str]:
    """The reasons, in words."""
    return [name for reason, name in _NAMES.items() if reasons & reason]


@final
class Meter:
    """The rates of one client."""

    def __init__(self, limits: Limits, now_ms: int) -> None:
        publish_rate, byte_rate = limits.client_publish_rate_max, limits.client_bytes_rate_max
        self._publishes: Final = Bucket(publish_rate, now_ms) if publish_rate else None
        self._bytes: Final = Bucket(byte_rate, now_ms) if byte_rate else None

    def charge(self, publishes: int, size_bytes: int, now_ms: int) -> float:
        """Count what was processed; returns for how many seconds the client is not to be read from, 0 for none."""
        wait_ms = self._publishes.spend(publishes, now_ms) if self._publishes is not None else 0
        if self._bytes is not None:
            wait_ms = max(wait_ms, self._bytes.spend(size_bytes, now_ms))
        return min(wait_ms, PAUSE_MS_MAX) / 1000


class StreamLink(ClientLink):
    """One client. `address_key` is what its address counts as."""

    def __init__(self) -> None:
        ClientLink.__init__(self)
        self.address_key = ""

    # -- from the server ---------------------------------------------------------------------------------------------

    @abstractmethod
    def flush(self) -> None:
        """Send all that this turn gathered in one write, and end the connection if that was decided."""

    @abstractmethod
    def proceed(self) -> None:
        """A new turn has begun: process the next share of what has come, or read on."""

    @abstractmethod
    def cut_share(self) -> None:
        """To write what a turn has made of this client's packets took long."""

    @abstractmethod
    def connect_timed_out(self) -> None:
        """CONNACK was not sent in time."""

    @abstractmethod
    def pause_reading(self, reason: int) -> None:
        """Stop reading, for one of the reasons above; what has arrived waits in the kernel."""

    @abstractmethod
    def resume_reading(self, reason: int) -> None:
        """A reason is gone: read again, if it was the last."""

    @abstractmethod
    def is_at(self, listener: Listener) -> bool:
        """Whether the client has come by this listener."""

    @abstractmethod
    def abort(self) -> None:
        """End at once, whatever the client has not read."""

    # -- from its authentication -------------------------------------------------------------------------------------

    @abstractmethod
    def accepted(self, connect: Connect, identity: Identity) -> None:
        """It is known who the client is: the core gives it its session."""

    @abstractmethod
    def refused(self, refusal: Refused) -> None:
        """The client may not connect: say so in CONNACK."""

    @abstractmethod
    def fail(self, error: PeerError) -> None:
        """The client broke a rule: its connection ends."""
