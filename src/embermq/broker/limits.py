"""Limits: how much one client, or all of them, may ask of the server.

Owns: name, unit and default of every bound that the core and the shells hold. The defaults here are the defaults.
Never: where a value comes from; `config` fills one in from file, environment and flags.
"""

from typing import Final, final

from embermq.protocol.packets import KEEP_ALIVE_UNCAPPED_S, SESSION_NEVER_EXPIRES, capped_keep_alive_s

PACKET_BYTES_MAX: Final = 16 * 1024 * 1024
CONNECTIONS_MAX: Final = 100_000
SESSIONS_MAX: Final = 100_000
INFLIGHT_MAX: Final = 2_000
QUEUE_MESSAGES_MAX: Final = 100_000
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
QUEUE_LOG_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024
ALL_QUEUE_BYTES_MAX: Final = 0
TOPIC_LEVELS_MAX: Final = 128
SUBSCRIPTIONS_MAX: Final = 20_000
SUBSCRIPTION_BYTES_MAX: Final = 32 * 1024 * 1024
ALL_SUBSCRIPTION_BYTES_MAX: Final = 256 * 1024 * 1024
SHARE_GROUPS_MAX: Final = 200
HISTORY_SUBSCRIPTIONS_MAX: Final = 32
ALL_HISTORY_SUBSCRIPTIONS_MAX: Final = 1_000
KEEP_ALIVE_MAX_S: Final = KEEP_ALIVE_UNCAPPED_S
CONNECT_TIMEOUT_S: Final = 10
SESSION_EXPIRY_MAX_S: Final = 30 * 24 * 3600
WILL_GRACE_S: Final = 30
FILES_RESERVED: Final = 512
MEMORY_BYTES_MAX: Final = 0
CLIENT_RATE_MAX: Final = 0
ADDRESS_CONNECTIONS_MAX: Final = 10_000
ADDRESS_LOGIN_FAILURES_MAX: Final = 10


@final
class Limits:
    """The bounds of one server. What happens at each is said in docs/configuration.md."""

    __slots__ = (
        "packet_bytes_max",
        "connections_max",
        "sessions_max",
        "inflight_max",
        "queue_messages_max",
        "queue_bytes_max",
        "queue_log_bytes_max",
        "output_bytes_max",
        "all_queue_bytes_max",
        "topic_levels_max",
        "subscriptions_max",
        "subscription_bytes_max",
        "all_subscription_bytes_max",
        "share_groups_max",
        "history_subscriptions_max",
        "all_history_subscriptions_max",
        "keep_alive_max_s",
        "connect_timeout_s",
        "session_expiry_max_s",
        "will_grace_s",
        "files_reserved",
        "memory_bytes_max",
        "client_connect_rate_max",
        "client_publish_rate_max",
        "client_subscribe_rate_max",
        "client_bytes_rate_max",
        "address_connections_max",
        "address_login_failures_max",
    )

    def __init__(
        self,
        *,
        packet_bytes_max: int = PACKET_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
        sessions_max: int = SESSIONS_MAX,
        inflight_max: int = INFLIGHT_MAX,
        queue_messages_max: int = QUEUE_MESSAGES_MAX,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        queue_log_bytes_max: int = QUEUE_LOG_BYTES_MAX,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        all_queue_bytes_max: int = ALL_QUEUE_BYTES_MAX,
        topic_levels_max: int = TOPIC_LEVELS_MAX,
        subscriptions_max: int = SUBSCRIPTIONS_MAX,
        subscription_bytes_max: int = SUBSCRIPTION_BYTES_MAX,
        all_subscription_bytes_max: int = ALL_SUBSCRIPTION_BYTES_MAX,
        share_groups_max: int = SHARE_GROUPS_MAX,
        history_subscriptions_max: int = HISTORY_SUBSCRIPTIONS_MAX,
        all_history_subscriptions_max: int = ALL_HISTORY_SUBSCRIPTIONS_MAX,
        keep_alive_max_s: int = KEEP_ALIVE_MAX_S,
        connect_timeout_s: int = CONNECT_TIMEOUT_S,
        session_expiry_max_s: int = SESSION_EXPIRY_MAX_S,
        will_grace_s: int = WILL_GRACE_S,
        files_reserved: int = FILES_RESERVED,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        client_connect_rate_max: int = CLIENT_RATE_MAX,
        client_publish_rate_max: int = CLIENT_RATE_MAX,
        client_subscribe_rate_max: int = CLIENT_RATE_MAX,
        client_bytes_rate_max: int = CLIENT_RATE_MAX,
        address_connections_max: int = ADDRESS_CONNECTIONS_MAX,
        address_login_failures_max: int = ADDRESS_LOGIN_FAILURES_MAX,
    ) -> None:
        self.packet_bytes_max: Final = packet_bytes_max  # of its remaining length, judged before any allocation
        self.connections_max: Final = connections_max
        self.sessions_max: Final = sessions_max  # of clients that are connected and of those that are away
        self.inflight_max: Final = inflight_max  # unacknowledged QoS 1 and 2 messages to one client
        self.queue_messages_max: Final = queue_messages_max  # owed to one session, if its queue is in memory
        self.queue_bytes_max: Final = queue_bytes_max  # of one session's messages in memory, those in flight included
        self.queue_log_bytes_max: Final = queue_log_bytes_max  # of the log, kept for one persistent session
        self.output_bytes_max: Final = output_bytes_max  # not yet taken by one connection's peer
        # In memory, owed to all connected clients together; 0: a fourth of `memory_bytes_max`.
        self.all_queue_bytes_max: Final = all_queue_bytes_max
        self.topic_levels_max: Final = topic_levels_max
        self.subscriptions_max: Final = subscriptions_max  # of one client
        self.subscription_bytes_max: Final = subscription_bytes_max  # in memory, of one client
        self.all_subscription_bytes_max: Final = all_subscription_bytes_max  # in memory, of all clients together
        self.share_groups_max: Final = share_groups_max  # that one client is a member of
        self.history_subscriptions_max: Final = history_subscriptions_max  # `$asof` and `$replay`, of one client
        self.all_history_subscriptions_max: Final = all_history_subscriptions_max  # of all clients together
        self.keep_alive_max_s: Final = keep_alive_max_s
        self.connect_timeout_s: Final = connect_timeout_s  # from the accepted socket to a whole CONNECT
        self.session_expiry_max_s: Final = session_expiry_max_s
        self.will_grace_s: Final = will_grace_s  # after a start, how long clients have to come back before their wills
        self.files_reserved: Final = files_reserved  # descriptors that no connection gets
        self.memory_bytes_max: Final = memory_bytes_max  # of the process; 0: three fourths of the machine's
        self.client_connect_rate_max: Final = client_connect_rate_max  # in a second; 0: no bound; so for the next three
        self.client_publish_rate_max: Final = client_publish_rate_max
        self.client_subscribe_rate_max: Final = client_subscribe_rate_max  # topic filters
        self.client_bytes_rate_max: Final = client_bytes_rate_max  # received
        self.address_connections_max: Final = address_connections_max  # 0: no bound; so for the next one
        self.address_login_failures_max: Final = address_login_failures_max  # until it has to wait

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
