"""Metrics: read by Prometheus's own parser, each named in the docs, and the dashboard and alerts name only these."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.http.alerts.metric_names import METRICS
from embermq.http.options import HttpOptions
from embermq.http.resources.metrics import SessionSums, metrics_text
from embermq.http.resources.pipeline.progress import JobFacts, PipelineFacts
from embermq.http.topic_metrics import TopicMetric
from support.ember_command import wire
from support.http_place import Place, run
from support.transports import joined

ROOT = Path(__file__).parent.parent.parent.parent
DASHBOARD = ROOT / "deploy" / "monitoring" / "grafana-dashboard.json"
ALERTS = ROOT / "deploy" / "monitoring" / "alerts.yml"
NAME = re.compile(r"\b(?:embermq|process)_[a-z_]+\b")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Scrape:
    """The samples of one scrape; `names` are those of the families, as they are exported."""

    def __init__(self, text: str) -> None:
        self.samples: Samples = {}
        self.names: set[str] = set()
        self.sample_names: set[str] = set()
        for family in text_string_to_metric_families(text):
            self.names.add(f"{family.name}_total" if family.type == "counter" else family.name)
            for sample in family.samples:
                self.samples[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
                self.sample_names.add(sample.name)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    directory = tmp_path_factory.mktemp("metrics")
    token = write_token(directory / "tokens", "prometheus", "viewer")
    http = HttpOptions(port=0, token_file=directory / "tokens", lake=directory)
    (directory / "_embermq").mkdir()
    jobs = {"jobs": {"messages": {"offset": 1, "records": 0, "rate": 2.0}}}
    (directory / "_embermq" / "progress.json").write_text(json.dumps(jobs))
    with Broker.in_thread(data=directory / "data", http=http) as broker:
        away = wire(broker, "away", clean=False)
        away.subscribe(("a", 1), ("$share/g/b", 1))
        away.disconnect()
        with wire(broker, "c") as client:
            client.subscribe(("a", 2))
            client.publish("a", b"12", qos=0)
            client.publish("a", b"123", qos=1, retain=True)
            client.publish("a", b"1234", qos=2)
            url = f"http://127.0.0.1:{broker.http_port}/metrics"
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=60) as response:
                assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                yield Scrape(response.read().decode())


def test_the_numbers_are_those_of_the_server(scraped: Scrape) -> None:
    value = scraped.value
    for qos, size_bytes in (("0", 2), ("1", 3), ("2", 4)):
        assert value("embermq_publish_messages_total", direction="in", qos=qos) == 1
        assert value("embermq_publish_bytes_total", direction="in", qos=qos) == size_bytes
    assert value("embermq_publish_messages_total", direction="out", qos="0") == 1
    assert value("embermq_publish_messages_total", direction="out", qos="1") == 3
    assert value("embermq_publish_messages_total", direction="out", qos="2") == 1
    assert value("embermq_publish_bytes_total", direction="out", qos="1") == 3 + 3 + 4
    assert value("embermq_connections") == 1
    assert value("embermq_sessions", state="disconnected") == 1
    assert value("embermq_sessions_persistent") == 1
    assert (value("embermq_subscriptions"), value("embermq_share_groups")) == (3, 1)
    assert (value("embermq_retained_messages"), value("embermq_retained_bytes")) == (1, 4)
    assert value("embermq_owed_messages", of="session") >= 2
    assert value("embermq_messages_dropped_total", reason="queue-full") == 0
    assert value("embermq_commit_seconds_count") == value("embermq_commit_groups_total") > 0
    assert value("embermq_commit_seconds_bucket", le="+Inf") == value("embermq_commit_seconds_count")
    assert value("embermq_log_bytes") > 0 and value("embermq_log_segments") == 1
    assert value("embermq_pipeline_lag_records", job="messages") > 0
    assert value("process_resident_memory_bytes") > 0


def test_named_topic_filters_have_metrics_of_their_own(tmp_path: Path) -> None:
    token = write_token(tmp_path / "tokens", "prometheus", "viewer")
    metrics = (TopicMetric("presses", "plant/+/press/#"), TopicMetric("all", "plant/#"), TopicMetric("none", "nothing"))
    http = HttpOptions(port=0, token_file=tmp_path / "tokens", topic_metrics=metrics)
    with Broker.in_thread(port=0, http=http) as broker, wire(broker, "c") as client:
        client.publish("plant/1/press/state", b"12345", qos=1, retain=True)
        client.publish("plant/1/press/state", b"1", qos=0)
        client.publish("plant/1/oven", b"12", qos=2)
        url = f"http://127.0.0.1:{broker.http_port}/metrics"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=60) as response:
            scrape = Scrape(response.read().decode())

    def value(metric: str, name: str) -> float | None:
        return scrape.samples.get((f"embermq_topic_{metric}", (("name", name),)))

    counted = {"presses": (2, 6), "all": (3, 8), "none": (0, 0)}
    for name, (messages, size_bytes) in counted.items():
        assert (value("messages_total", name), value("bytes_total", name)) == (messages, size_bytes)
        age_s = value("age_seconds", name)
        assert age_s is None if not messages else age_s is not None and 0 <= age_s < 60


def test_every_metric_is_in_the_docs_and_no_other(scraped: Scrape) -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    listed = set(re.findall(r"^\| `((?:embermq|process)_[a-z_]+)", page, re.MULTILINE))
    assert listed == scraped.names


def test_an_alert_may_be_about_every_metric_but_histograms_and_those_of_the_process(scraped: Scrape) -> None:
    of_server = {name for name in scraped.names if name.startswith("embermq_")}
    assert of_server - {"embermq_commit_seconds"} == METRICS


def test_the_dashboard_and_the_alerts_name_metrics_that_there_are(scraped: Scrape) -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(expressions) > 10
    for text in (*expressions, ALERTS.read_text()):
        names = set(NAME.findall(text))
        assert names and names <= scraped.sample_names | scraped.names, names - scraped.sample_names
    for expression in expressions:
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")


def test_refused_connections_have_their_reason(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        from embermq.protocol.reasons import ReasonCode

        place.server.core.counters.refuse_connection(ReasonCode.NOT_AUTHORIZED)
        text = await metrics_text(
            place.service, PipelineFacts(jobs=[JobFacts(name='"\\\n', records=0, rate=0.0, lag=1, violations=3)])
        )
        found = Scrape(text.decode())
        assert found.value("embermq_connections_refused_total", reason="not_authorized") == 1
        assert found.value("embermq_pipeline_lag_records", job='"\\\n') == 1
        assert found.value("embermq_pipeline_violations", job='"\\\n') == 3

    run(tmp_path, test)


def test_sums_over_many_sessions_let_others_have_their_turn(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        for number in range(2_000):
            await joined(place.server, f"c{number}")
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        sums = SessionSums()
        await sums.add_all(place.service)
        counting.cancel()
        assert turns > 1 and sums.persistent == 0

    run(tmp_path, test)
