"""The rules of alerts: what a sentence says, and when a rule fires."""

import pytest

from embermq.http.alerts.rules import Alert, AlertRule, MetricBound, Silence, condition, hears_itself, wrong_webhook


def bound(metric: str, sign: str, value: float, for_s: int = 0, **labels: str) -> MetricBound:
    return MetricBound(metric, frozenset(labels.items()), sign, value, for_s)


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ("embermq_disk_free_bytes < 1GiB for 1m", bound("embermq_disk_free_bytes", "<", 1 << 30, 60)),
        ("embermq_group_bytes>1e6", bound("embermq_group_bytes", ">", 1e6)),
        ('embermq_errors_total{kind="store"} > 0', bound("embermq_errors_total", ">", 0, kind="store")),
        ('embermq_a{a="x, }", b=""} > -0.5 for 2h', bound("embermq_a", ">", -0.5, 7200, a="x, }", b="")),
        ("plant/7/status is silent for 5m", Silence("plant/7/status", 300)),
        ("a topic/+/# is silent for 1d", Silence("a topic/+/#", 86_400)),
        ("x is silent for 5m is silent for 90", Silence("x is silent for 5m", 90)),
    ],
)
def test_a_sentence_is_a_condition(when: str, found: object) -> None:
    assert condition(when) == found


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("", "expected a rule such as"),
        ("disk_free < 1", "expected a rule such as"),
        ("embermq_connections = 1", "expected a rule such as"),
        ("embermq_connections > many", "expected a number of bytes"),
        ("embermq_connections > inf", "expected a number"),
        ("embermq_connections > nan", "expected a number"),
        ("embermq_connections > 1 for 0s", "of 1 s at least"),
        ("embermq_connections > 1 for ever", "expected a number of seconds"),
        ("embermq_connections{a} > 1", "expected a rule such as"),
        ("a#b is silent for 5m", "expected a topic filter before 'is silent'"),
        ("a is silent for 0", "of 1 s at least"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_sentence(when: str, said: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        condition(when)
    assert said in str(refused.value)


@pytest.mark.parametrize("url", ["http://host/x", "https://host:8443/x?key=1", "http://[::1]:80/"])
def test_urls_that_a_webhook_may_have(url: str) -> None:
    assert wrong_webhook(url) == ""


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "http://", "http://a b/", "http://a\r\nb/", "http://[/"])
def test_what_is_no_webhook_is_refused(url: str) -> None:
    assert wrong_webhook(url).startswith("expected a URL such as")


def test_a_password_in_a_url_is_refused() -> None:
    assert wrong_webhook("https://ann:pw@host/") == "expected a URL without user and password"


def test_an_alert_that_would_end_its_own_silence() -> None:
    def rule(when: str, topic: str) -> AlertRule:
        return AlertRule("a", when, condition(when), topic)

    assert hears_itself(rule("alerts/# is silent for 5m", "alerts/a"))
    assert not hears_itself(rule("plant/# is silent for 5m", "alerts/a"))
    assert not hears_itself(rule("# is silent for 5m", ""))
    assert not hears_itself(rule("embermq_connections > 1", "alerts/a"))


def test_a_bound_must_be_exceeded_for_its_time_without_a_pause() -> None:
    when = "embermq_connections > 10 for 30s"
    alert = Alert(AlertRule("a", when, condition(when)))
    assert alert.see(11, 0, 1) is None and alert.state == "ok" and alert.since_us == 1
    assert alert.see(12, 29, 2) == "ok" and alert.state == "ok"
    assert alert.see(10, 31, 3) == "ok" and alert.state == "ok"
    assert alert.see(11, 32, 4) == "ok" and alert.since_us == 1
    assert alert.see(11, 62, 5) == "ok" and (alert.state, alert.since_us) == ("firing", 5)
    assert alert.see(99, 90, 6) == "firing" and (alert.state, alert.since_us, alert.value) == ("firing", 5, 99)
    assert alert.see(None, 91, 7) == "firing" and str(alert.state) == "no value"
    assert alert.see(11, 92, 8) == "no value"
    assert str(alert.state) == "ok"


def test_a_problem_is_new_once() -> None:
    alert = Alert(AlertRule("a", "", Silence("a", 1)))
    assert alert.keep_problem("x") and not alert.keep_problem("x")
    assert not alert.keep_problem("") and alert.keep_problem("x")
