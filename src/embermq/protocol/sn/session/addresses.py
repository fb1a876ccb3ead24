"""Whereabouts: which virtual connection is at which address, and which one a client id means.

Owns: both tables, what happens when two connections want the same address, and the aliases of 2.0 sessions whose
connection is over. All of it is bounded by the number of clients.
"""

from typing import Final, final

from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.events import Address
from embermq.protocol.sn.session.aliases import Aliases
from embermq.protocol.sn.session.connection import VirtualConnection
from embermq.protocol.sn.session.counters import SnCounters
from embermq.protocol.sn.session.presence import CLOSED

NetworkIdentity = tuple[Address, bytes]
"""Where a client is: the socket address, and the way behind a forwarder."""

MOVED_IN: Final = "its address belongs to another client now"
MADE_ROOM: Final = "it said nothing after its CONNECT, and another client needed the room"
UNHEARD_MS: Final = 5_000
"""How long a client may say nothing after its CONNECT before its place can go to another."""


@final
class Whereabouts:
    """The virtual connections of one listener."""

    __slots__ = ("_most", "_counters", "_at", "_of", "_unheard", "_remembered")

    def __init__(self, most: int, counters: SnCounters) -> None:
        self._most: Final = most
        self._counters: Final = counters
        self._at: Final[dict[NetworkIdentity, VirtualConnection]] = {}
        self._of: Final[dict[str, VirtualConnection]] = {}
        self._unheard: Final[dict[VirtualConnection, None]] = {}  # nothing came after their CONNECT, the oldest first
        self._remembered: Final[dict[str, Aliases]] = {}

    def at(self, identity: NetworkIdentity) -> VirtualConnection | None:
        """Who is at an address."""
        return self._at.get(identity)

    def of(self, client_id: str) -> VirtualConnection | None:
        """Which connection a client id means: the last one that was accepted."""
        return self._of.get(client_id)

    def room_for(self, identity: NetworkIdentity, now_ms: int) -> bool:
        """Whether there is room for one more at an address.

        When all places are taken, one of a client that never said more than its CONNECT is given up: a forged address
        does not, and would hold its place as long as the keep alive that was asked for with it.
        """
        if len(self._at) < self._most or identity in self._at:
            return True
        silent = next(iter(self._unheard), None)
        if silent is None or now_ms - silent.opened_ms < UNHEARD_MS:
            return False
        silent.lose(MADE_ROOM, ReasonCode.SERVER_BUSY)
        return len(self._at) < self._most

    def heard(self, connection: VirtualConnection) -> None:
        """Something came after a CONNECT."""
        self._unheard.pop(connection, None)

    def aliases_of(self, client_id: str) -> Aliases | None:
        """The aliases of a client's session, connected or not."""
        connection = self._of.get(client_id)
        return connection.outgoing.aliases if connection is not None else self._remembered.get(client_id)

    def arrived(self, connection: VirtualConnection) -> None:
        """A new connection; until it is accepted, who was at its address before may yet come back."""
        identity = (connection.wire.address, connection.wire.route)
        displaced = self._at.get(identity)
        if displaced is not None:
            displaced.silent = True  # what is sent there reaches the new connection
            connection.displaced = displaced
        self._at[identity] = connection
        self._counters.clients += 1

    def accepted(self, connection: VirtualConnection, session_present: bool) -> None:
        """CONNACK is about to leave: the client id is this connection's. If the session goes on, so do its aliases."""
        displaced = connection.displaced
        connection.displaced = None
        if displaced is not None:
            displaced.lose(MOVED_IN, ReasonCode.UNSPECIFIED_ERROR)
        self._of[connection.client_id] = connection
        self._unheard[connection] = None
        remembered = self._remembered.pop(connection.client_id, None)
        if session_present and remembered is not None and connection.wire.profile.aliases_outlive_connection:
            connection.outgoing.aliases = remembered

    def moved(self, connection: VirtualConnection, identity: NetworkIdentity) -> None:
        """A client is at another address now; who was there before is lost."""
        wire = connection.wire
        old = (wire.address, wire.route)
        if old == identity:
            return
        if self._at.get(old) is connection:
            del self._at[old]
        before = self._at.get(identity)
        if before is not None:
            before.silent = True
            before.lose(MOVED_IN, ReasonCode.UNSPECIFIED_ERROR)
        wire.move(identity[0], identity[1])
        self._at[identity] = connection
        self._counters.rebinds += 1

    def gone(self, connection: VirtualConnection) -> None:
        """A connection is over. The aliases of a session that outlives it are kept."""
        self._counters.clients -= 1
        self._unheard.pop(connection, None)
        wire = connection.wire
        identity = (wire.address, wire.route)
        if self._at.get(identity) is connection:
            del self._at[identity]
            displaced = connection.displaced
            if displaced is not None and displaced.presence.state != CLOSED:
                # It never got its CONNACK, so who was at its address before is still there.
                displaced.silent = False
                self._at[identity] = displaced
        client_id = connection.client_id
        if self._of.get(client_id) is not connection:
            return
        del self._of[client_id]
        aliases = connection.outgoing.aliases
        if wire.profile.aliases_outlive_connection and connection.session_expiry_s and len(aliases):
            self._remembered.pop(client_id, None)
            self._remembered[client_id] = aliases
            if len(self._remembered) > self._most:
                del self._remembered[next(iter(self._remembered))]
