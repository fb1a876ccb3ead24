"""A session: a client's state, which may outlive its connection (3.1.1 section 3.1.2.4).

Owns: the subscriptions, the QoS 2 ids taken from the client, the will, what is owed to the client, its link.
"""

from typing import Final, final

from embermq.broker.access import Identity
from embermq.broker.delivery import Outbound
from embermq.broker.link import Link
from embermq.broker.session_streams import SessionStreams
from embermq.broker.subscriptions import Subscription
from embermq.protocol.packets import Will


@final
class Session:
    """One client id. `link` is None while no connection is open, and until CONNACK has left."""

    __slots__ = (
        "client_id",
        "session_id",
        "identity",
        "link",
        "opening",
        "subscriptions",
        "received_ids",
        "outbound",
        "streams",
        "will",
        "session_expiry_s",
        "keep_alive_ms",
        "heard_ms",
        "lost_ms",
        "held",
        "ended",
    )

    def __init__(self, client_id: str, session_id: int, identity: Identity, outbound: Outbound) -> None:
        self.client_id: Final = client_id
        self.session_id: Final = session_id  # 0: it is not in the store, it ends with its connection
        self.identity = identity
        self.link: Link | None = None
        self.opening: Link | None = None  # connected, but CONNACK waits for a commit
        self.subscriptions: dict[str, Subscription] = {}
        self.received_ids: set[int] = set()
        self.outbound: Final = outbound
        self.streams: Final = SessionStreams()
        self.will: Will | None = None
        self.session_expiry_s = 0
        self.keep_alive_ms = 0
        self.heard_ms = 0
        self.lost_ms = 0  # when the last connection ended; 0 while there is one
        self.held = 0  # what it caused and waits for a commit: nothing later of its own may overtake that
        self.ended = False

    def keep_alive_due_ms(self) -> int:
        """When silence has lasted one and a half times the keep-alive (MQTT-3.1.2-24); 0 for never."""
        if self.keep_alive_ms == 0 or (self.link is None and self.opening is None):
            return 0
        return self.heard_ms + self.keep_alive_ms + self.keep_alive_ms // 2
