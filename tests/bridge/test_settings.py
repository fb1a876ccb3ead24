"""`[[bridges]]`: what they say, what is refused, and what a reload does with them."""

import re
import tomllib
from pathlib import Path

import pytest

from embermq.bridge.plan import BridgePlan, Rule, first_moved
from embermq.client.address import ServerAddress
from embermq.config import load
from embermq.errors import ConfigError
from embermq.settings import BridgeRule, OneBridge, sample

ONE = "[[bridges]]\nname = 'a'\nurl = 'mqtt://other'\n"
OUT = "out = [{ filter = 'x/#' }]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "ember.toml"
    path.write_text(text)
    return path


def test_the_sample_shows_every_setting_and_is_read(tmp_path: Path) -> None:
    lines = [line for line in sample().splitlines() if line.startswith("#     ")]
    start = lines.index("#     [[bridges]]")
    shown = "\n".join(line[6:] for line in lines[start:])
    (found,) = tomllib.loads(shown)["bridges"]
    assert set(found) == {field.alias or name for name, field in OneBridge.model_fields.items()}
    assert set(found["out"][0]) == set(BridgeRule.model_fields)
    (plan,) = load(written(tmp_path, shown)).bridges.plans()
    assert str(plan.address) == "mqtts://broker.example:8883"
    assert [rule.remote_filter for rule in plan.outgoing] == ["site7/plant/#", "shared/#"]
    assert [rule.local_filter for rule in plan.incoming] == ["from-office/orders/#", "shared/#"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONE, "bridges.0: expected rules in out, in or both (bridge a)"),
        (ONE + OUT + ONE + OUT, "two bridges are called a"),
        (ONE.replace("'a'", "'a/b'") + OUT, "bridges.0.name: must match pattern"),
        (ONE.replace("mqtt:", "http:") + OUT, "bridges.0: url of bridge a: expected mqtt://host:1883"),
        (ONE.replace("mqtt://", "http://me:secret@") + OUT, "bridges.0: url of bridge a: expected mqtt://host:1883"),
        (
            ONE + OUT + "ca = 'ca.crt'",
            "ca, certificate and key of bridge a need TLS: expected mqtts:// or wss:// in url",
        ),
        (
            ONE.replace("//other", "//me:secret@other") + OUT,
            "the URL of bridge a has a user: set user and password_file",
        ),
        (ONE + OUT + "password_file = 'p'", "password_file needs user (bridge a)"),
        (ONE + OUT + "key = 'k'", "certificate and key are given together or not at all"),
        (ONE + OUT + "mqtt = '3.1'", "bridges.0.mqtt: expected '5' or '3.1.1', not '3.1'"),
        (ONE + OUT + "qos = 1", "there is no setting bridges.0.qos"),
        (ONE + "out = [{ filter = 'x/#/y' }]", "bridges.0.out.0.filter: expected a topic filter"),
        (ONE + "out = [{ filter = '#', local = 'a' }]", "expected a prefix and a filter that make a topic filter"),
        (ONE + "out = [{ filter = '#', remote = '+/' }]", "expected a prefix without wildcards"),
        (ONE + "in = [{ filter = 'a', qos = 3 }]", "bridges.0.in.0.qos: expected less than or equal to 2"),
        (ONE + OUT + "[store]\nmemory = true", "[[bridges]] need a log on disk"),
        ("bridges = 3", "bridges: expected a table of settings, not 3"),
    ],
)
def test_what_is_wrong_is_one_sentence(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)) as raised:
        load(written(tmp_path, text))
    assert "secret" not in str(raised.value)


def test_a_bridge_is_named_when_its_broker_is_not_one_of_mqtt(tmp_path: Path) -> None:
    assert load(written(tmp_path, ONE + OUT)).bridges.each[0].name == "a"


@pytest.mark.parametrize(
    ("rule", "local", "remote"),
    [
        (Rule("a/#", "", "", 2), "a/b", "a/b"),
        (Rule("a/#", "", "x/", 2), "a", "x/a"),
        (Rule("#", "here/", "there/", 2), "here/a/b", "there/a/b"),
        (Rule("+/t", "here/", "", 2), "here/a/t", "a/t"),
    ],
)
def test_names_are_rewritten_both_ways(rule: Rule, local: str, remote: str) -> None:
    assert rule.to_remote(local) == remote
    assert rule.to_local(remote) == local


def test_what_no_rule_is_about_stays() -> None:
    rule = Rule("#", "here/", "there/", 2)
    assert [rule.to_remote(name) for name in ("here", "here/", "other", "$SYS/x")] == [None] * 4
    assert Rule("#", "", "", 2).to_remote("$SYS/broker/uptime") is None
    assert Rule("#", "", "x" * 65_535, 2).to_remote("a") is None


def test_of_several_rules_the_first_decides() -> None:
    rules = (Rule("a/b", "", "first/", 0), Rule("a/#", "", "second/", 2))
    assert first_moved(rules, "a/b", True) == ("first/a/b", rules[0])
    assert first_moved(rules, "a/c", True) == ("second/a/c", rules[1])
    assert first_moved(rules, "c", True) is None


@pytest.mark.parametrize(
    ("out", "into", "has_loop"), [("a/#", "a/+", True), ("a/#", "b/#", False), ("a/1", "a/2", False)]
)
def test_filters_that_meet_at_the_other_broker_make_a_loop(out: str, into: str, has_loop: bool) -> None:
    plan = BridgePlan(
        name="b", address=ServerAddress("h", 1), outgoing=(Rule(out, "", "", 1),), incoming=(Rule(into, "", "", 1),)
    )
    assert plan.has_loop() == has_loop
