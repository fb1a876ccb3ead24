"""Metrics for Prometheus, taken from the server's counters when they are asked for: the hot path pays nothing.

Owns: the names of the metrics. docs/http.md lists them; a test compares.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from embermq import __version__
from embermq.http.resources.pipeline.progress import PipelineFacts
from embermq.http.service import Service
from embermq.http.streaming import Slices

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DROPPED: Final = "publish/messages/dropped/"
BRIDGES: Final = "bridges/"

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


@final
class SessionSums:
    """Sums over all sessions. There may be many: they are visited in slices, between which clients are served."""

    __slots__ = ("in_flight", "memory_bytes", "owed", "persistent", "slowed", "unread_bytes")

    def __init__(self) -> None:
        self.owed = 0
        self.in_flight = 0
        self.memory_bytes = 0
        self.unread_bytes = 0
        self.persistent = 0
        self.slowed: Final[Counter[str]] = Counter()

    async def add_all(self, service: Service) -> None:
        slices = Slices()
        for session in service.server.core.sessions():
            outbound = session.outbound
            self.owed += outbound.owed()
            self.in_flight += len(outbound.inflight) + len(outbound.shared)
            self.memory_bytes += outbound.memory_bytes
            if session.session_id:
                self.persistent += 1
            link = session.link
            if link is not None:
                self.unread_bytes += link.unread_bytes()
                self.slowed.update(link.slowed_by())
            await slices.rest()


async def metrics_text(service: Service, pipeline: PipelineFacts) -> bytes:
    """All metrics in Prometheus's text format."""
    sums = SessionSums()
    await sums.add_all(service)
    registry = CollectorRegistry()
    registry.register(ServerCollector(service, sums, pipeline))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


@final
class ServerCollector(Collector):
    """The state of one server at one moment."""

    def __init__(self, service: Service, sums: SessionSums, pipeline: PipelineFacts) -> None:
        self._service: Final = service
        self._sums: Final = sums
        self._pipeline: Final = pipeline

    def collect(self) -> Iterator[Family]:
        yield from self._traffic()
        yield from self._clients()
        yield from self._queues()
        yield from self._store()
        yield from self._log()
        yield from self._archive()
        yield from self._cluster()
        yield from self._jobs()
        yield from self._topics()
        yield from self._alerts()
        yield from self._bridges()

    def _traffic(self) -> Iterator[Family]:
        counters = self._service.server.core.counters
        directions = ("in", "out")
        yield _counters(
            "packets",
            "Control packets.",
            "direction",
            zip(directions, (counters.messages_received, counters.messages_sent), strict=True),
        )
        yield _counters(
            "bytes",
            "Bytes on streams.",
            "direction",
            zip(directions, (counters.bytes_received, counters.bytes_sent), strict=True),
        )
        messages = CounterMetricFamily("embermq_publish_messages", "PUBLISH packets.", labels=("direction", "qos"))
        sizes = CounterMetricFamily(
            "embermq_publish_bytes", "Payloads of PUBLISH packets.", labels=("direction", "qos")
        )
        for direction, by_qos in (("in", counters.received_by_qos()), ("out", counters.sent_by_qos())):
            counts, bytes_ = by_qos
            for qos in range(3):
                messages.add_metric((direction, str(qos)), counts[qos])
                sizes.add_metric((direction, str(qos)), bytes_[qos])
        yield messages
        yield sizes
        values = self._service.server.core.counter_values()
        dropped = ((name.removeprefix(DROPPED), value) for name, value in values.items() if name.startswith(DROPPED))
        yield _counters("messages_dropped", "Messages that were dropped.", "reason", dropped)
        others = (
            (name, value)
            for counts in counters.others
            for name, value in counts().items()
            if not name.startswith(BRIDGES)  # they have metrics of their own
        )
        yield _counters("transport_events", "What transports count, as below $SYS/broker/.", "name", others)
        errors = (
            ("protocol", counters.protocol_errors),
            ("internal", counters.internal_errors),
            ("store", counters.store_refusals),
        )
        yield _counters(
            "errors", "Broken rules of the protocol, bugs, and refusals while the store fails.", "kind", errors
        )
        yield _counter("acks_unknown", "Acknowledgements of unknown packet identifiers.", counters.acks_unknown)

    def _clients(self) -> Iterator[Family]:
        server = self._service.server
        counters = server.core.counters
        sessions = server.core.session_count()
        connected = counters.clients_connected
        yield _gauge("connections", "Connected clients.", connected)
        streams_by_listener = ((each.name, each.connections) for each in server.listeners)
        yield _gauges("listener_streams", "Streams, before CONNECT too.", "listener", streams_by_listener)
        refused = ((reason.name.lower(), count) for reason, count in counters.refusals.items())
        yield _counters("connections_refused", "Refused connections.", "reason", refused)
        yield _gauges(
            "sessions", "Sessions.", "state", (("connected", connected), ("disconnected", sessions - connected))
        )
        yield _gauge("sessions_persistent", "Sessions that outlive their connection.", self._sums.persistent)
        yield _counter("sessions_expired", "Sessions that have expired.", counters.clients_expired)
        yield _gauge("subscriptions", "Subscriptions.", server.core.subscription_count())
        yield _counter("subscriptions_refused", "Refused subscriptions.", counters.subscriptions_refused)
        yield _gauge("history_subscriptions", "History subscriptions.", counters.history_subscriptions)
        yield _counter("history_messages_sent", "Messages sent for history subscriptions.", counters.history_messages)
        yield _gauge("share_groups", "Share groups.", len(server.core.share_groups()))
        yield _gauges(
            "clients_slowed",
            "Clients that are served more slowly than they could be.",
            "reason",
            self._sums.slowed.items(),
        )
        streams = self._service.places.count + self._service.page_places.count
        yield _gauge("http_streams", "Streams of the HTTP interface that are being read.", streams)

    def _queues(self) -> Iterator[Family]:
        sums = self._sums
        groups = sum(group.owed() for group in self._service.server.core.share_groups())
        owed = (("session", sums.owed), ("share-group", groups))
        yield _gauges(
            "owed_messages", "QoS 1 and 2 messages that are not acknowledged, queued or in flight.", "of", owed
        )
        yield _gauge("in_flight_messages", "QoS 1 and 2 messages that were sent and not acknowledged.", sums.in_flight)
        yield _gauge("queue_memory_bytes", "Messages in flight or read ahead, in memory.", sums.memory_bytes)
        yield _gauge("unread_bytes", "What was sent and not read by clients.", sums.unread_bytes)

    def _store(self) -> Iterator[Family]:
        store = self._service.server.store
        count, size_bytes = store.retained.totals()
        yield _gauge("retained_messages", "Retained messages.", count)
        yield _gauge("retained_bytes", "Their topic names and payloads.", size_bytes)
        budgets = store.retained.budget_totals()
        yield _gauges(
            "budget_messages", "Retained messages of a budget.", "filter", ((name, used) for name, used, _ in budgets)
        )
        yield _gauges("budget_bytes", "Their bytes.", "filter", ((name, used) for name, _, used in budgets))
        yield _gauge("store_failing", "1 while nothing can be made durable.", int(bool(store.failing())))
        counts = store.counts()
        yield _gauge("disk_free_bytes", "What is free of the store's disk.", counts.get("disk/free-bytes", 0))
        yield _gauge("disk_reserve_bytes", "How much of it the store leaves free.", counts.get("disk/reserve-bytes", 0))
        yield _gauge("group_bytes", "Size of the open commit group.", store.group_bytes())
        times = store.commit_times()
        if times is not None:
            yield _counter("commit_groups", "Commit groups that are durable.", times.groups)
            yield _counter("commit_records", "Their records.", times.records)
            family = HistogramMetricFamily(
                "embermq_commit_seconds", "From the end of a commit group until it is durable."
            )
            family.add_metric((), times.buckets(), times.sum_s)
            yield family

    def _log(self) -> Iterator[Family]:
        store = self._service.server.store
        segments = store.history.log_segments()
        yield _gauge("log_bytes", "Size of the log.", sum(segment.size_bytes for segment in segments))
        yield _gauge("log_segments", "Files of the log.", len(segments))
        oldest_us = min((segment.first_timestamp_us for segment in segments if segment.first_timestamp_us), default=0)
        age_s = max(0.0, time.time() - oldest_us / 1_000_000) if oldest_us else 0.0
        yield _gauge("log_age_seconds", "Age of its oldest record.", age_s)
        yield _gauge("log_next_offset", "The offset that the next record gets.", store.next_offset())
        server = self._service.server
        yield _gauge("uptime_seconds", "Since the start.", server.core.uptime_ms(server.now_ms()) / 1000)
        yield _gauges("info", "The version.", "version", ((__version__, 1),))

    def _archive(self) -> Iterator[Family]:
        """All of them are 0 on a server without an archive."""
        counts = self._service.server.store.counts()

        def count(name: str) -> int:
            return counts.get(f"archive/{name}", 0)

        yield _counter("archive_uploads", "Segments and checkpoints that were archived.", count("uploads"))
        yield _counter("archive_uploaded_bytes", "Bytes that were sent to the archive.", count("uploaded-bytes"))
        yield _gauge("archive_pending_bytes", "Closed segments that the archive lacks.", count("pending-bytes"))
        yield _counter("archive_failures", "Failed attempts to archive.", count("failures"))
        yield _gauge("archive_success_age_seconds", "Since the archive was up to date at last.", count("success-age-s"))
        yield _counter("archive_fetched_bytes", "Bytes of the archive fetched for replays.", count("fetched-bytes"))
        yield _counter("archive_lost_records", "Records trimmed before they were archived.", count("lost-records"))

    def _cluster(self) -> Iterator[Family]:
        """A single server is active, and the others are 0."""
        store = self._service.server.store
        counts = store.counts()
        yield _gauge("cluster_active", "1 while this server serves clients.", int(store.is_active()))
        yield _gauge("cluster_epoch", "How often a node has become the active one.", counts.get("cluster/epoch", 0))
        yield _gauge("cluster_position", "How far the shared log is read.", counts.get("cluster/position", 0))
        yield _counter("cluster_void_blocks", "Blocks read that do not count.", counts.get("cluster/void-blocks", 0))

    def _jobs(self) -> Iterator[Family]:
        jobs = self._pipeline.jobs
        lags = ((job.name, job.lag) for job in jobs if job.lag is not None)
        yield _gauges(
            "pipeline_lag_records", "Records of the log that a job of the pipeline has not applied.", "job", lags
        )
        yield _gauges(
            "pipeline_records_per_second",
            "How fast a job applies records.",
            "job",
            ((job.name, job.rate) for job in jobs),
        )
        yield _gauges(
            "pipeline_violations",
            "Rows of a table of violations.",
            "job",
            ((job.name, job.violations) for job in jobs if job.violations is not None),
        )

    def _topics(self) -> Iterator[Family]:
        counts = self._service.topic_counts
        yield _counters(
            "topic_messages",
            "Messages of a named topic filter.",
            "name",
            ((each.metric.name, each.messages) for each in counts),
        )
        yield _counters(
            "topic_bytes",
            "Payloads of a named topic filter.",
            "name",
            ((each.metric.name, each.payload_bytes) for each in counts),
        )
        now_s = time.time()
        ages = ((each.metric.name, max(0.0, now_s - each.newest_s)) for each in counts if each.newest_s)
        yield _gauges("topic_age_seconds", "Since the newest message of a named topic filter.", "name", ages)

    def _alerts(self) -> Iterator[Family]:
        service = self._service
        firing = ((alert.rule.name, int(alert.state == "firing")) for alert in service.alerts)
        yield _gauges("alert_firing", "1 while the alert fires.", "alert", firing)
        outcomes = (("sent", service.webhooks.sent), ("failed", service.webhooks.failed))
        yield _counters("alert_webhooks", "Changes of alerts for webhooks.", "outcome", outcomes)

    def _bridges(self) -> Iterator[Family]:
        calls = self._service.calls
        bridges = [] if calls is None else calls.bridges()
        yield _gauges(
            "bridge_connected",
            "1 while the bridge is connected.",
            "bridge",
            ((each.name, int(each.state == "connected")) for each in bridges),
        )
        yield _gauges(
            "bridge_lag_records",
            "Records of the log that a bridge has not passed.",
            "bridge",
            ((each.name, each.lag) for each in bridges),
        )
        messages = CounterMetricFamily("embermq_bridge_messages", "Messages of bridges.", labels=("bridge", "outcome"))
        for each in bridges:
            for outcome, count in each.messages().items():
                messages.add_metric((each.name, outcome), count)
        yield messages
        lost = ((each.name, each.counters.lost) for each in bridges)
        yield _counters("bridge_lost_records", "Records trimmed before a bridge had come to them.", "bridge", lost)
        failures = ((each.name, each.counters.failures) for each in bridges)
        yield _counters("bridge_failures", "Connections that failed.", "bridge", failures)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"embermq_{name}", text, value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"embermq_{name}", text, value)


def _counters(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"embermq_{name}", text, labels=(label,))
    for value, count in values:
        family.add_metric((value,), count)
    return family


def _gauges(name: str, text: str, label: str, values: Iterable[tuple[str, float]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"embermq_{name}", text, labels=(label,))
    for value, count in values:
        family.add_metric((value,), count)
    return family
