"""The server about itself: the `$SYS/broker/...` topics that dashboards know.

Owns: their names and how each is made from the counters. They are never recorded: they live in memory only.
"""

from typing import Final

from embermq.broker.counters import Counters

SYS_PREFIX: Final = "$SYS/"


def sys_values(
    counters: Counters,
    *,
    version: str,
    uptime_s: int,
    sessions: int,
    subscriptions: int,
    retained: tuple[int, int],
    store_state: str,
) -> dict[str, str]:
    """Every topic name below `$SYS/broker/` with its present value."""
    connected = counters.clients_connected
    dropped = (
        counters.dropped_output_full
        + counters.dropped_queue_full
        + counters.dropped_not_authorized
        + counters.dropped_topic_refused
        + counters.dropped_retained_budget
    )
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
        "publish/messages/received": counters.publish_received,
        "publish/messages/sent": counters.publish_sent,
        "publish/messages/dropped": dropped,
        "publish/messages/dropped/output-full": counters.dropped_output_full,
        "publish/messages/dropped/queue-full": counters.dropped_queue_full,
        "publish/messages/dropped/not-authorized": counters.dropped_not_authorized,
        "publish/messages/dropped/topic-refused": counters.dropped_topic_refused,
        "publish/messages/dropped/retained-budget": counters.dropped_retained_budget,
        "publish/bytes/received": counters.publish_bytes_received,
        "publish/bytes/sent": counters.publish_bytes_sent,
        "retained messages/count": retained[0],
        "retained messages/bytes": retained[1],
        "subscriptions/count": subscriptions,
        "subscriptions/refused": counters.subscriptions_refused,
        "acks/unknown": counters.acks_unknown,
        "errors/protocol": counters.protocol_errors,
        "errors/internal": counters.internal_errors,
        "store/state": store_state,
        "store/refusals": counters.store_refusals,
    }
    for counts in counters.others:
        values.update(counts())
    return {f"$SYS/broker/{name}": str(value) for name, value in values.items()}
