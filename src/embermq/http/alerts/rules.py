"""The rules of alerts: one sentence each, and what it is now.

Owns: how `when` is read, and when a rule fires.
Never: a clock, a metric's value. Both come in as arguments.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal, final
from urllib.parse import urlsplit

from embermq.protocol.topics import check_topic_filter, matches
from embermq.units import DURATION_EXPECTED, duration_s, size_bytes

EXPECTED: Final = (
    'a rule such as "embermq_disk_free_bytes < 1GiB for 1m", \'embermq_errors_total{kind="store"} > 0\' or'
    ' "plant/7/status is silent for 5m"'
)
_SILENCE: Final = re.compile(r"(.+) is silent for (\S+)")
_METRIC: Final = re.compile(r"(embermq_[a-z0-9_]+|process_[a-z0-9_]+)\s*(\{.*\})?\s*([<>])\s*(\S+)(?: for (\S+))?")
_LABEL: Final = re.compile(r'\s*([a-z_]+)\s*=\s*"([^"]*)"\s*(?:,|$)')
COUNTER: Final = "_total"
"""How the name of a counter ends. Its rate a second is compared."""

State = Literal["ok", "firing", "no value"]


@dataclass(frozen=True, slots=True)
class MetricBound:
    """A metric is above (`>`) or below (`<`) a bound for some time. Samples that have the labels are added."""

    metric: str
    labels: frozenset[tuple[str, str]]
    sign: str
    bound: float
    for_s: int

    def holds(self, value: float) -> bool:
        return value > self.bound if self.sign == ">" else value < self.bound


@dataclass(frozen=True, slots=True)
class Silence:
    """No message that a filter matches was published for some time."""

    topic_filter: str
    for_s: int

    def holds(self, value: float) -> bool:
        """`value`: seconds since the last one."""
        return value > self.for_s


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule; changes go to a topic and to the URL of a webhook, where these are not empty."""

    name: str
    when: str
    condition: MetricBound | Silence
    topic: str = ""
    webhook: str = ""

    @property
    def webhook_host(self) -> str:
        """What may be shown of the URL: its path is often a secret."""
        return urlsplit(self.webhook).hostname or ""


def condition(when: str) -> MetricBound | Silence:
    """The condition that a sentence says; ValueError says what was expected."""
    if found := _SILENCE.fullmatch(when.strip()):
        problem = check_topic_filter(found[1])
        if problem:
            raise ValueError(f"expected a topic filter before 'is silent' ({problem})")
        return Silence(found[1], _duration(found[2]))
    found = _METRIC.fullmatch(when.strip())
    if found is None:
        raise ValueError(f"expected {EXPECTED}")
    labels = _labels(found[2][1:-1] if found[2] else "")
    return MetricBound(found[1], labels, found[3], _number(found[4]), _duration(found[5]) if found[5] else 0)


def wrong_webhook(url: str) -> str:
    """Why a text is not the URL of a webhook; empty if it is."""
    try:
        parts = urlsplit(url)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right or not url.isascii() or any(character <= " " for character in url):
        return "expected a URL such as https://alerts.example.com/hook"
    return "expected a URL without user and password" if "@" in parts.netloc else ""


def hears_itself(rule: AlertRule) -> bool:
    """Whether what an alert publishes would end the silence that it is about."""
    return bool(rule.topic) and isinstance(rule.condition, Silence) and matches(rule.condition.topic_filter, rule.topic)


def _duration(text: str) -> int:
    seconds = duration_s(text)
    if seconds < 1:
        raise ValueError(f"expected {DURATION_EXPECTED}, of 1 s at least")
    return seconds


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return size_bytes(text)
    if number - number != 0:  # infinite, or not a number
        raise ValueError("expected a number")
    return number


def _labels(text: str) -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        if label is None:
            raise ValueError(f"expected {EXPECTED}")
        found.add((label[1], label[2]))
        at = label.end()
    return frozenset(found)


@final
class Alert:
    """A rule, and what it is now."""

    __slots__ = ("_held_since_s", "problem", "rule", "since_us", "state", "untold", "value")

    def __init__(self, rule: AlertRule) -> None:
        self.rule: Final = rule
        self.state: State | None = None  # before the first check
        self.since_us = 0
        self.value: float | None = None
        self.problem = ""
        self.untold = ""
        self._held_since_s: float | None = None

    def see(self, value: float | None, now_s: float, now_us: int) -> State | None:
        """Take the value of now. Returns the state before if it has changed, else the present one."""
        before = self.state
        self.value = value
        wait_s = self.rule.condition.for_s if isinstance(self.rule.condition, MetricBound) else 0
        if value is None or not self.rule.condition.holds(value):
            self._held_since_s = None
        elif self._held_since_s is None:
            self._held_since_s = now_s
        fires = self._held_since_s is not None and now_s - self._held_since_s >= wait_s
        self.state = "no value" if value is None else "firing" if fires else "ok"
        if self.state != before:
            self.since_us = now_us
        return before

    def keep_problem(self, problem: str) -> bool:
        """Keep why the rule cannot be checked, empty if it can; returns whether that is new."""
        is_new = bool(problem) and problem != self.problem
        self.problem = problem
        return is_new

    def keep_untold(self, problem: str) -> None:
        """Keep why the last change was not told somewhere; empty if it was."""
        self.untold = problem
