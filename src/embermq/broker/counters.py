"""Counters: what happened, by name. `sys_topics` shows them, and every limit that bites has one here."""

from collections.abc import Callable
from typing import Final, final


@final
class Counters:
    """Plain integers that only grow, but for `clients_connected`."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "messages_received",
        "messages_sent",
        "publish_received",
        "publish_sent",
        "publish_bytes_received",
        "publish_bytes_sent",
        "clients_connected",
        "clients_maximum",
        "clients_expired",
        "connections_refused",
        "dropped_output_full",
        "dropped_queue_full",
        "dropped_not_authorized",
        "dropped_topic_refused",
        "dropped_retained_budget",
        "subscriptions_refused",
        "acks_unknown",
        "protocol_errors",
        "internal_errors",
        "store_refusals",
        "others",
    )

    def __init__(self) -> None:
        self.bytes_received = 0
        self.bytes_sent = 0
        self.messages_received = 0  # control packets of any type, as dashboards expect of this name
        self.messages_sent = 0
        self.publish_received = 0
        self.publish_sent = 0
        self.publish_bytes_received = 0
        self.publish_bytes_sent = 0
        self.clients_connected = 0
        self.clients_maximum = 0
        self.clients_expired = 0
        self.connections_refused = 0
        self.dropped_output_full = 0
        self.dropped_queue_full = 0
        self.dropped_not_authorized = 0
        self.dropped_topic_refused = 0
        self.dropped_retained_budget = 0
        self.subscriptions_refused = 0
        self.acks_unknown = 0
        self.protocol_errors = 0
        self.internal_errors = 0
        self.store_refusals = 0
        # Transports that count things of their own: each hands back names below `$SYS/broker/` and their counts.
        self.others: Final[list[Callable[[], dict[str, int]]]] = []
