"""Counters: what happened, by name, and the `$SYS/broker/...` topics that show it.

Owns: the counts, one for every limit that has an effect, and the names that dashboards know them by.
`$SYS` messages are never recorded: they are kept in memory only.
"""

from collections.abc import Callable
from typing import Final, final

from embermq.protocol.packets import Publish
from embermq.protocol.reasons import ReasonCode

SYS_PREFIX: Final = "$SYS/"


@final
class Counters:
    """Plain integers that only grow, except `clients_connected`."""

    def __init__(self) -> None:
        self.bytes_received = 0
        self.bytes_sent = 0
        self.messages_received = 0  # control packets of any type, as dashboards expect of this name
        self.messages_sent = 0
        self.publish_received = 0
        self.publish_sent = 0
        self.publish_shared = 0  # put into the queue of a share group, until a member can take it
        self.publish_bytes_shared = 0
        self.publish_bytes_received = 0
        self.publish_bytes_sent = 0
        # Of these, what was at QoS 1 and at QoS 2; the rest was at QoS 0.
        self.publish_received_1 = 0
        self.publish_received_2 = 0
        self.publish_sent_1 = 0
        self.publish_sent_2 = 0
        self.publish_bytes_received_1 = 0
        self.publish_bytes_received_2 = 0
        self.publish_bytes_sent_1 = 0
        self.publish_bytes_sent_2 = 0
        self.clients_connected = 0
        self.clients_maximum = 0
        self.clients_expired = 0
        self.connections_refused = 0
        self.refusals: Final[dict[ReasonCode, int]] = {}  # of connections, by reason
        self.publishers_held_back = 0  # how often a publisher had to wait for a receiver
        self.clients_slowed_by_rate = 0  # how often a client was not read from because of its rate
        self.retained_slowed_by_rate = 0  # how often the next retained messages of a client had to wait for its rate
        self.receivers_slow = 0  # how often a receiver did not drain while publishers waited for it
        self.queues_long = 0  # how often a session came near `queue_log_bytes_max`
        self.dropped_output_full = 0
        self.dropped_queue_full = 0
        self.dropped_too_large = 0  # larger than the receiver's Maximum Packet Size (MQTT 5); counted by links
        self.dropped_expired = 0  # its Message Expiry Interval was over before it could be sent (MQTT 5)
        self.dropped_not_authorized = 0
        self.dropped_topic_refused = 0
        self.dropped_payload_format = 0  # QoS 1 and 2 with a payload that is not as announced (MQTT 5)
        self.dropped_retained_budget = 0
        self.subscriptions_refused = 0
        self.history_subscriptions = 0  # at present
        self.history_messages = 0  # sent for them
        self.acks_unknown = 0
        self.protocol_errors = 0
        self.internal_errors = 0
        self.store_refusals = 0
        # Counts of the transports: each call returns names below `$SYS/broker/` with their values.
        self.others: Final[list[Callable[[], dict[str, int]]]] = []

    def refuse_connection(self, reason: ReasonCode) -> None:
        """A connection was refused."""
        self.connections_refused += 1
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def count_received(self, qos: int, count: int, payload_bytes: int) -> None:
        """PUBLISH packets have come, all of one QoS."""
        self.publish_received += count
        self.publish_bytes_received += payload_bytes
        if qos == 1:
            self.publish_received_1 += count
            self.publish_bytes_received_1 += payload_bytes
        elif qos == 2:
            self.publish_received_2 += count
            self.publish_bytes_received_2 += payload_bytes

    def count_sent(self, qos: int, count: int, payload_bytes: int) -> None:
        """Messages were sent, or are owed to a session, all at one QoS."""
        self.publish_sent += count
        self.publish_bytes_sent += payload_bytes
        if qos == 1:
            self.publish_sent_1 += count
            self.publish_bytes_sent_1 += payload_bytes
        elif qos == 2:
            self.publish_sent_2 += count
            self.publish_bytes_sent_2 += payload_bytes

    def received_by_qos(self) -> tuple[list[int], list[int]]:
        """PUBLISH packets that came, and their payloads, by QoS."""
        return (
            _by_qos(self.publish_received, self.publish_received_1, self.publish_received_2),
            _by_qos(self.publish_bytes_received, self.publish_bytes_received_1, self.publish_bytes_received_2),
        )

    def sent_by_qos(self) -> tuple[list[int], list[int]]:
        """PUBLISH packets that were sent, and their payloads, by QoS."""
        return (
            _by_qos(self.publish_sent, self.publish_sent_1, self.publish_sent_2),
            _by_qos(self.publish_bytes_sent, self.publish_bytes_sent_1, self.publish_bytes_sent_2),
        )

    def dropped(self) -> int:
        """Messages that were dropped, for whatever reason."""
        return (
            self.dropped_output_full
            + self.dropped_queue_full
            + self.dropped_too_large
            + self.dropped_expired
            + self.dropped_not_authorized
            + self.dropped_topic_refused
            + self.dropped_payload_format
            + self.dropped_retained_budget
        )


def _by_qos(total: int, first: int, second: int) -> list[int]:
    return [total - first - second, first, second]


@final
class SysTopics:
    """The `$SYS` messages as they were last published."""

    def __init__(self) -> None:
        self.messages: Final[dict[str, Publish]] = {}  # by topic name

    def update(self, values: dict[str, str]) -> list[Publish]:
        """Replace the messages whose value has changed; returns those."""
        changed: list[Publish] = []
        for topic_name, value in values.items():
            payload = value.encode()
            before = self.messages.get(topic_name)
            if before is None or before.payload != payload:
                message = Publish(topic_name, payload, 0, True)
                self.messages[topic_name] = message
                changed.append(message)
        return changed


def _publish_values(counters: Counters) -> dict[str, str | int]:
    return {
        "publish/messages/received": counters.publish_received,
        "publish/messages/sent": counters.publish_sent,
        "publish/messages/shared": counters.publish_shared,
        "publish/messages/dropped": counters.dropped(),
        "publish/messages/dropped/output-full": counters.dropped_output_full,
        "publish/messages/dropped/queue-full": counters.dropped_queue_full,
        "publish/messages/dropped/too-large": counters.dropped_too_large,
        "publish/messages/dropped/expired": counters.dropped_expired,
        "publish/messages/dropped/not-authorized": counters.dropped_not_authorized,
        "publish/messages/dropped/topic-refused": counters.dropped_topic_refused,
        "publish/messages/dropped/payload-format": counters.dropped_payload_format,
        "publish/messages/dropped/retained-budget": counters.dropped_retained_budget,
        "publish/held-back": counters.publishers_held_back,
        "publish/receivers/slow": counters.receivers_slow,
        "clients/slowed-by-rate": counters.clients_slowed_by_rate,
        "clients/retained-slowed-by-rate": counters.retained_slowed_by_rate,
        "sessions/queues-long": counters.queues_long,
        "publish/bytes/received": counters.publish_bytes_received,
        "publish/bytes/sent": counters.publish_bytes_sent,
        "publish/bytes/shared": counters.publish_bytes_shared,
    }


def sys_values(
    counters: Counters,
    *,
    version: str,
    uptime_s: int,
    sessions: int,
    subscriptions: int,
    share_groups: int,
    wills_pending: int,
    retained: tuple[int, int],
    store_state: str,
    store_counts: dict[str, int],
) -> dict[str, str]:
    """Every topic name below `$SYS/broker/` with its present value."""
    connected = counters.clients_connected
    values: dict[str, str | int] = {
        "version": f"EmberMQ {version}",
        "uptime": f"{uptime_s} seconds",
        "clients/connected": connected,
        "clients/active": connected,
        "clients/disconnected": sessions - connected,
        "clients/inactive": sessions - connected,
        "clients/total": sessions,
        "clients/maximum": counters.clients_maximum,
        "clients/expired": counters.clients_expired,
        "connections/refused": counters.connections_refused,
        "messages/received": counters.messages_received,
        "messages/sent": counters.messages_sent,
        "bytes/received": counters.bytes_received,
        "bytes/sent": counters.bytes_sent,
        **_publish_values(counters),
        "retained messages/count": retained[0],
        "retained messages/bytes": retained[1],
        "subscriptions/count": subscriptions,
        "share-groups/count": share_groups,
        "wills/pending": wills_pending,
        "subscriptions/refused": counters.subscriptions_refused,
        "history/subscriptions": counters.history_subscriptions,
        "history/messages/sent": counters.history_messages,
        "acks/unknown": counters.acks_unknown,
        "errors/protocol": counters.protocol_errors,
        "errors/internal": counters.internal_errors,
        "store/state": store_state,
        "store/refusals": counters.store_refusals,
    }
    for name, count in store_counts.items():
        values[f"store/{name}"] = count
    for counts in counters.others:
        values.update(counts())
    return {f"$SYS/broker/{name}": str(value) for name, value in values.items()}
