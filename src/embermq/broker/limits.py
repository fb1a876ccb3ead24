"""Limits: how much one client, or all of them, may ask of the server.

Owns: name, unit, default and allowed values of every bound that the core and the shells hold.
Never: where a value comes from; `settings` fills one in from file, environment and flags.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le

from embermq.protocol.packets import KEEP_ALIVE_UNCAPPED_S, SESSION_NEVER_EXPIRES, capped_keep_alive_s

Count = Annotated[int, Ge(1)]
CountOrNone = Annotated[int, Ge(0)]
PacketBytes = Annotated[int, Ge(128), Le(268_435_460)]
OutputBytes = Annotated[int, Ge(4096)]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of one server. What happens at each is said in docs/configuration.md."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    # Of its remaining length, judged before any allocation.
    packet_bytes_max: PacketBytes = 16 * 1024 * 1024
    connections_max: Count = 100_000
    sessions_max: Count = 100_000  # of clients that are connected and of those that are away
    inflight_max: Annotated[int, Ge(1), Le(65_535)] = 2_000  # unacknowledged QoS 1 and 2 messages to one client
    queue_messages_max: Count = 100_000  # owed to one session, if its queue is in memory
    queue_bytes_max: Count = 64 * 1024 * 1024  # of one session's messages in memory, those in flight included
    queue_log_bytes_max: Count = 4 * 1024 * 1024 * 1024  # of the log, kept for one persistent session
    output_bytes_max: OutputBytes = 4 * 1024 * 1024  # not yet taken by one connection's peer
    # In memory, owed to all connected clients together; 0: a fourth of `memory_bytes_max`.
    all_queue_bytes_max: CountOrNone = 0
    topic_levels_max: Count = 128
    subscriptions_max: Count = 20_000  # of one client
    subscription_bytes_max: Count = 32 * 1024 * 1024  # in memory, of one client
    all_subscription_bytes_max: Count = 256 * 1024 * 1024  # in memory, of all clients together
    share_groups_max: CountOrNone = 200  # that one client is a member of
    history_subscriptions_max: CountOrNone = 32  # `$asof` and `$replay`, of one client
    all_history_subscriptions_max: CountOrNone = 1_000  # of all clients together
    keep_alive_max_s: Annotated[int, Ge(1), Le(65_535)] = KEEP_ALIVE_UNCAPPED_S
    connect_timeout_s: Count = 10  # from the accepted socket to a whole CONNECT
    session_expiry_max_s: Annotated[int, Ge(1), Le(0xFFFF_FFFF)] = 30 * 24 * 3600
    # After a start, how long clients have to come back before their wills.
    will_grace_s: Annotated[int, Ge(0), Le(86_400)] = 30
    files_reserved: CountOrNone = 512  # descriptors that no connection gets
    memory_bytes_max: CountOrNone = 0  # of the process; 0: three fourths of the machine's
    client_connect_rate_max: CountOrNone = 0  # CONNECTs in a second; 0: no bound
    client_publish_rate_max: CountOrNone = 0  # messages in a second; 0: no bound
    client_subscribe_rate_max: CountOrNone = 0  # topic filters in a second; 0: no bound
    client_bytes_rate_max: CountOrNone = 0  # received in a second; 0: no bound
    client_retained_rate_max: CountOrNone = 0  # retained messages sent in a second; 0: no bound
    address_connections_max: CountOrNone = 10_000  # 0: no bound
    address_login_failures_max: CountOrNone = 10  # until it has to wait; 0: no bound

    def has_client_rates(self) -> bool:
        """Whether what a client sends is metered."""
        return self.client_publish_rate_max > 0 or self.client_bytes_rate_max > 0

    def keep_alive_s(self, asked_s: int) -> int:
        """The keep alive that a client gets; 0 is none."""
        return capped_keep_alive_s(asked_s, self.keep_alive_max_s)

    def session_expiry_s(self, asked_s: int) -> int:
        """The expiry that a session gets."""
        if self.session_expiry_max_s >= SESSION_NEVER_EXPIRES:
            return asked_s
        return min(asked_s, self.session_expiry_max_s)
