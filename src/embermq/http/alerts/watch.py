"""The watch: checks all rules of a server again and again, and tells what has changed.

Owns: where a rule's value comes from (the metrics, or a subscription that listens for messages), and the message that
says what a rule has become: retained on the rule's topic, and to its webhook.
"""

import asyncio
import json
import logging
import time
from contextlib import suppress
from typing import Final, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from embermq.broker.clientless import ClientlessSubscription, ReadingLink
from embermq.http.alerts.rules import COUNTER, Alert, MetricBound, Silence
from embermq.http.alerts.webhooks import Told
from embermq.http.fields import now_us
from embermq.http.resources.metrics import ServerCollector, SessionSums
from embermq.http.resources.pipeline.progress import facts_of, progress_in
from embermq.http.service import Pending, Service
from embermq.instants import utc_text
from embermq.protocol.packets import Publish
from embermq.store.interface import StoreError

logger: Final = logging.getLogger("embermq")

CHECK_S: Final = 5.0
LOGIN_NAME: Final = "alerts"
"""Who publishes an alert's messages, as the log has it: $operator/alerts."""

Values = dict[str, dict[frozenset[tuple[str, str]], float]]
"""The samples of each metric, by their labels."""


@final
class Listening(ReadingLink):
    """Hears whether anything was published."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = False

    def gather(self, message: Publish) -> None:
        self.heard = True

    def was_heard(self) -> bool:
        """Whether there was a message since this was asked last."""
        heard, self.heard = self.heard, False
        return heard


@final
class AlertWatch:
    """The rules of one server."""

    __slots__ = ("_check_s", "_heard_s", "_links", "_read_s", "_service", "_values")

    def __init__(self, service: Service, check_s: float = CHECK_S) -> None:
        self._service: Final = service
        self._check_s: Final = check_s
        self._links: Final[dict[str, Listening]] = {}  # by the name of the rule
        self._heard_s: Final[dict[str, float]] = {}
        self._values: Values = {}
        self._read_s = 0.0

    async def run(self) -> None:
        """Check until this is cancelled."""
        await self.begin()
        while True:
            await asyncio.sleep(self._check_s)
            try:
                await self.check()
            except (OSError, StoreError):
                continue  # as of the next one
            except Exception as error:  # rules that are checked no more would say "ok" for good
                self._service.server.bug(error)

    async def begin(self) -> None:
        """Listen from now on, and take the counters of now."""
        core = self._service.server.core
        self._read_s = time.monotonic()
        for alert in self._service.alerts:
            if isinstance(alert.rule.condition, Silence):
                link = self._links[alert.rule.name] = Listening()
                self._heard_s[alert.rule.name] = self._read_s
                ClientlessSubscription(core, alert.rule.condition.topic_filter, link).begin()
        with suppress(OSError, StoreError):  # the first check has no counters to compare with, then
            self._values = await self._read()

    async def check(self) -> None:
        """Check each rule once."""
        before, before_s = self._values, self._read_s
        self._values, self._read_s = await self._read(), time.monotonic()
        elapsed_s = max(0.001, self._read_s - before_s)
        for alert in self._service.alerts:
            condition = alert.rule.condition
            if isinstance(condition, Silence):
                value: float | None = self._silent_s(alert.rule.name)
                problem = ""
            else:
                value = _value(condition, self._values, before, elapsed_s)
                problem = "" if condition.metric in self._values else f"there is no metric {condition.metric}"
            was = alert.see(value, self._read_s, now_us())
            if alert.keep_problem(problem):
                logger.warning("alert %s: %s", alert.rule.name, problem)
            if was != alert.state:
                self._tell(alert, is_news="firing" in (was, alert.state))

    def _silent_s(self, name: str) -> float:
        """For how long nothing was heard."""
        if self._links[name].was_heard():
            self._heard_s[name] = self._read_s
        return round(self._read_s - self._heard_s[name], 3)

    def _tell(self, alert: Alert, is_news: bool) -> None:
        """Say what a rule has become: on its topic and, if it fires or fires no more, in the log and to its webhook."""
        rule = alert.rule
        told = {"alert": rule.name, "state": alert.state, "when": rule.when, "since": utc_text(alert.since_us)}
        body = json.dumps(told if alert.value is None else {**told, "value": alert.value}).encode()
        alert.keep_untold("")
        if rule.topic:
            self._publish(alert, body)
        if is_news:
            logger.warning("alert %s is %s: %s (value %s)", rule.name, alert.state, rule.when, alert.value)
            if rule.webhook:
                self._service.webhooks.send(rule.webhook, body, self._webhook_told(alert))

    def _publish(self, alert: Alert, body: bytes) -> None:
        message = Publish(alert.rule.topic, body, 1, True)
        try:
            refusal = self._service.publish(message, Pending(), LOGIN_NAME)
        except StoreError as error:
            refusal = str(error)
        if refusal:
            alert.keep_untold(f"not published to {alert.rule.topic}: {refusal}")
            logger.warning("alert %s: %s", alert.rule.name, alert.untold)

    def _webhook_told(self, alert: Alert) -> Told:
        loop = asyncio.get_running_loop()

        def told(problem: str) -> None:
            if not problem:
                return
            logger.warning("alert %s: its webhook has failed: %s", alert.rule.name, problem)
            with suppress(RuntimeError):  # a loop that was closed in the meantime
                loop.call_soon_threadsafe(alert.keep_untold, problem)

        return told

    async def _read(self) -> Values:
        """All gauges and counters; nothing if no rule is about one."""
        service = self._service
        if not any(isinstance(alert.rule.condition, MetricBound) for alert in service.alerts):
            return {}
        progress = await service.on_thread(lambda: progress_in(service.lake))
        sums = SessionSums()
        await sums.add_all(service)
        found: Values = {}
        for family in ServerCollector(service, sums, facts_of(progress, service.server.store.next_offset())).collect():
            if isinstance(family, CounterMetricFamily | GaugeMetricFamily):
                name = family.name + (COUNTER if isinstance(family, CounterMetricFamily) else "")
                found[name] = {frozenset(sample.labels.items()): sample.value for sample in family.samples}
        return found


def _value(condition: MetricBound, values: Values, before: Values, elapsed_s: float) -> float | None:
    """The value of a metric, or the rate of a counter since the check before; None if it has none."""
    now = _sum(condition, values)
    if now is None or not condition.metric.endswith(COUNTER):
        return now
    if condition.metric not in before:
        return None
    return round((now - (_sum(condition, before) or 0.0)) / elapsed_s, 3)


def _sum(condition: MetricBound, values: Values) -> float | None:
    found = [value for labels, value in values.get(condition.metric, {}).items() if condition.labels <= labels]
    return sum(found) if found else None
