"""Addresses: which virtual connection is at which network address, and which one a client id means.

Owns: both tables, what happens when two connections want the same address, and the aliases of sessions that have no
connection at the moment (2.0). All of it is bounded by the number of clients.
"""

from itertools import islice
from typing import Final, final

from embermq.protocol.reasons import ReasonCode
from embermq.protocol.sn.aliases import Aliases
from embermq.protocol.sn.client_state import CLOSED
from embermq.protocol.sn.connection import VirtualConnection
from embermq.protocol.sn.counters import SnCounters
from embermq.protocol.sn.peer import NetworkIdentity

ADDRESS_TAKEN: Final = "its address belongs to another client now"
UNPROVEN_PART: Final = 4
"""Clients with unproven addresses have one place in UNPROVEN_PART, and those of one host half of these."""
UNPROVEN_MIN: Final = 64
"""At least as many places, if there are as many at all."""
PROOFS_ASKED: Final = 2
"""How many clients are asked to prove their address when another is accepted: the oldest that were not asked yet."""


@final
class Addresses:
    """The virtual connections of one listener."""

    def __init__(self, connections_max: int, counters: SnCounters) -> None:
        self._connections_max: Final = connections_max
        self._unproven_max: Final = max(connections_max // UNPROVEN_PART, min(connections_max, UNPROVEN_MIN))
        self._host_unproven_max: Final = max(self._unproven_max // 2, min(self._unproven_max, UNPROVEN_MIN))
        self._counters: Final = counters
        self._at_address: Final[dict[NetworkIdentity, VirtualConnection]] = {}
        self._of_client: Final[dict[str, VirtualConnection]] = {}
        # Accepted clients whose addresses may be forged, the oldest first: all, by host, and those not asked for proof.
        self._unproven: Final[dict[VirtualConnection, str]] = {}  # with its host when it was accepted
        self._unproven_at: Final[dict[str, dict[VirtualConnection, None]]] = {}
        self._unasked: Final[dict[VirtualConnection, None]] = {}
        self._aliases: Final[dict[str, Aliases]] = {}  # by client id, of sessions without a connection

    def at(self, identity: NetworkIdentity) -> VirtualConnection | None:
        """The connection at an address."""
        return self._at_address.get(identity)

    def of(self, client_id: str) -> VirtualConnection | None:
        """The connection that a client id means: the last one that was accepted."""
        return self._of_client.get(client_id)

    def has_place(self, identity: NetworkIdentity) -> bool:
        """Whether one more connection fits at an address. When all places are taken, the oldest client whose address is
        unproven loses its own: a forged one would keep it for the keep alive or the sleep that was asked for with it.
        """
        if len(self._at_address) < self._connections_max or identity in self._at_address:
            return True
        if self._unproven:
            next(iter(self._unproven)).give_place()
        return len(self._at_address) < self._connections_max

    def _add_unproven(self, connection: VirtualConnection) -> None:
        """Clients whose addresses are unproven, and those of one host, take the places of the oldest of them."""
        host = str(connection.peer.address()[0])
        same = self._unproven_at.get(host)
        if same is not None and len(same) >= self._host_unproven_max:
            next(iter(same)).give_place()
        elif len(self._unproven) >= self._unproven_max:
            next(iter(self._unproven)).give_place()
        self._unproven_at.setdefault(host, {})[connection] = None
        self._unproven[connection] = host
        self._unasked[connection] = None
        connection.set_awaits_proof(True)

    def ask_for_proofs(self, now_ms: int) -> None:
        """If half of the places for unproven addresses are taken: have the oldest clients prove theirs."""
        if not self.are_scarce():
            return
        for connection in list(islice(self._unasked, PROOFS_ASKED)):
            del self._unasked[connection]  # one that sleeps is asked when it wakes
            connection.ask_for_proof(now_ms)

    def are_scarce(self) -> bool:
        """Whether half of the places for unproven addresses are taken."""
        return len(self._unproven) * 2 > self._unproven_max

    def proven(self, connection: VirtualConnection) -> None:
        """A client has answered something that no other address has seen, or it has ended."""
        if not connection.awaits_proof:
            return
        connection.set_awaits_proof(False)
        self._unasked.pop(connection, None)
        host = self._unproven.pop(connection)
        same = self._unproven_at[host]
        del same[connection]
        if not same:
            del self._unproven_at[host]

    def aliases_of(self, client_id: str) -> Aliases | None:
        """The aliases of a client's session, with or without a connection."""
        connection = self._of_client.get(client_id)
        return connection.outgoing.aliases if connection is not None else self._aliases.get(client_id)

    def add(self, connection: VirtualConnection) -> None:
        """A new connection. If it is not accepted, the connection that was at its address before stays."""
        identity = connection.peer.identity
        previous = self._at_address.get(identity)
        if previous is not None:
            connection.displace(previous)
        self._at_address[identity] = connection
        self._counters.clients += 1

    def accept(self, connection: VirtualConnection, session_present: bool) -> None:
        """CONNACK leaves next: the client id means this connection. A session that continues keeps its aliases."""
        previous = connection.take_previous()
        if previous is not None:
            previous.lose(ADDRESS_TAKEN, ReasonCode.UNSPECIFIED_ERROR)
        self._of_client[connection.client_id] = connection
        if not connection.peer.is_proven:
            self._add_unproven(connection)
        aliases = self._aliases.pop(connection.client_id, None)
        if session_present and aliases is not None and connection.peer.profile.rules.aliases_belong_to_session:
            connection.outgoing.keep_aliases(aliases)

    def move(self, connection: VirtualConnection, identity: NetworkIdentity) -> None:
        """A client is at another address now. A connection that was there is lost."""
        peer = connection.peer
        old = peer.identity
        if old == identity:
            return
        if self._at_address.get(old) is connection:
            del self._at_address[old]
        previous = self._at_address.get(identity)
        if previous is not None:
            previous.set_muted(True)
            previous.lose(ADDRESS_TAKEN, ReasonCode.UNSPECIFIED_ERROR)
        peer.move(identity)
        self._at_address[identity] = connection
        self._counters.rebinds += 1

    def remove(self, connection: VirtualConnection) -> None:
        """A connection has ended. The aliases of a session that outlives it are kept."""
        self._counters.clients -= 1
        self.proven(connection)
        peer = connection.peer
        if self._at_address.get(peer.identity) is connection:
            del self._at_address[peer.identity]
            previous = connection.take_previous()
            if previous is not None and previous.client_state.state != CLOSED:
                # This connection was never accepted, so the one before it is still at the address.
                previous.set_muted(False)
                self._at_address[peer.identity] = previous
        client_id = connection.client_id
        if self._of_client.get(client_id) is not connection:
            return
        del self._of_client[client_id]
        aliases = connection.outgoing.aliases
        if peer.profile.rules.aliases_belong_to_session and connection.session_expiry_s and len(aliases):
            self._aliases.pop(client_id, None)
            self._aliases[client_id] = aliases
            if len(self._aliases) > self._connections_max:
                del self._aliases[next(iter(self._aliases))]
