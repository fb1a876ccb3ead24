"""A client on a byte stream, as the server and the parts of its connection see it, and why it is not read from.

Owns: the calls to a `StreamConnection`, which knows the server; the server does not know the class. The reasons not to
read from a client, as bits of a number: each ends by itself, and the client is read from again when none is left.
"""

from abc import abstractmethod
from typing import Final

from embermq.broker.access import Identity
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
"""It has sent more than its rates allow (`client_rates`)."""

WAITING_MAX: Final = 10_000
"""How many answers to one client may be pending: a group's size counts records, and not every answer has one."""

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
    def is_open(self) -> bool:
        """Whether more can come from the client."""

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
