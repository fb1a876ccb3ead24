"""The metrics that an alert may be about, for a check before any server runs.

Owns: their names, and which of them somebody may have meant. A test compares them with those of a server.
Never: a value.
"""

from difflib import get_close_matches
from typing import Final

from embermq.http.alerts.rules import AlertRule, MetricBound

PREFIX: Final = "embermq_"
METRICS: Final = frozenset(
    PREFIX + name
    for name in (
        "acks_unknown_total",
        "alert_firing",
        "alert_webhooks_total",
        "archive_failures_total",
        "archive_fetched_bytes_total",
        "archive_lost_records_total",
        "archive_pending_bytes",
        "archive_success_age_seconds",
        "archive_uploaded_bytes_total",
        "archive_uploads_total",
        "bridge_connected",
        "bridge_failures_total",
        "bridge_lag_records",
        "bridge_lost_records_total",
        "bridge_messages_total",
        "budget_bytes",
        "budget_messages",
        "bytes_total",
        "clients_slowed",
        "cluster_active",
        "cluster_epoch",
        "cluster_position",
        "cluster_void_blocks_total",
        "commit_groups_total",
        "commit_records_total",
        "connections",
        "connections_refused_total",
        "disk_free_bytes",
        "disk_reserve_bytes",
        "errors_total",
        "group_bytes",
        "history_messages_sent_total",
        "history_subscriptions",
        "http_streams",
        "in_flight_messages",
        "info",
        "listener_streams",
        "log_age_seconds",
        "log_bytes",
        "log_next_offset",
        "log_segments",
        "messages_dropped_total",
        "owed_messages",
        "packets_total",
        "pipeline_lag_records",
        "pipeline_violations",
        "pipeline_records_per_second",
        "publish_bytes_total",
        "publish_messages_total",
        "queue_memory_bytes",
        "retained_bytes",
        "retained_messages",
        "sessions",
        "sessions_expired_total",
        "sessions_persistent",
        "share_groups",
        "store_failing",
        "subscriptions",
        "subscriptions_refused_total",
        "topic_age_seconds",
        "topic_bytes_total",
        "topic_messages_total",
        "transport_events_total",
        "unread_bytes",
        "uptime_seconds",
    )
)
NEAR_MAX: Final = 3


def unknown_metric(rule: AlertRule) -> str:
    """Why there is nothing that a rule could be about, in a sentence; empty if there is, or it is no metric's rule."""
    condition = rule.condition
    if not isinstance(condition, MetricBound) or condition.metric in METRICS:
        return ""
    near = get_close_matches(condition.metric, METRICS, n=NEAR_MAX)
    meant = f"did you mean {' or '.join(near)}?" if near else "docs/http.md lists them"
    return f"the alert {rule.name}: there is no metric {condition.metric}, {meant}"
