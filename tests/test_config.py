"""The settings: precedence, the sample file, and the one sentence that a wrong setting gets."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from embermq import config
from embermq.broker.limits import Limits
from embermq.config import load
from embermq.errors import ConfigError
from embermq.http.resources.facts import is_secret
from embermq.protocol.mqtt.settings import DEFAULT_SETTINGS
from embermq.protocol.packets import SESSION_NEVER_EXPIRES
from embermq.settings import AlertSettings, BudgetSettings, Section, Settings, TopicMetricSettings, all_keys, sample
from embermq.transport.sockets.addresses import is_loopback, shown
from support.attributes import attributes_of

ALERT = "[[server.alerts]]\nname = 'a'\nwhen = 'a/+ is silent for 5m'\n"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.upper().startswith("EMBERMQ_"):
            monkeypatch.delenv(name)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "ember.toml"
    path.write_text(text)
    return path


def sentence(path: Path | None = None, flags: dict[str, dict[str, Any]] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, flags)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_server_reads_its_settings_without_those_of_the_pipeline_if_these_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "ember.toml"
    path.write_text('[server]\nsys_interval_s = 3\n[[pipeline.tables]]\nname = "air"\n')
    assert load(path, without=("pipeline",)).server.sys_interval_s == 3
    with pytest.raises(ConfigError, match=r"pipeline\.tables\.0\.filter is missing"):
        load(path)


def test_nothing_set_gives_the_defaults() -> None:
    settings = load()
    assert settings.model_dump() == Settings().model_dump()
    assert (settings.listeners.host, settings.listeners.port) == ("127.0.0.1", 1883)
    assert settings.anonymous_allowed()


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "[listeners]\nport = 1\nws_port = 2\nunix_mode = '600'\n[limits]\ninflight_max = 7\n")
    monkeypatch.setenv("EMBERMQ_LISTENERS__PORT", "11")
    monkeypatch.setenv("EMBERMQ_LISTENERS__WS_PORT", "12")
    monkeypatch.setenv("EMBERMQ_STORE__RECORDING_FILTERS", '["a/#"]')
    settings = load(path, {"listeners": {"port": 21}})
    assert settings.listeners.port == 21
    assert settings.listeners.ws_port == 12
    assert settings.listeners.unix_mode == "600"
    assert settings.limits.inflight_max == 7
    assert settings.store.recording_filters == ("a/#",)


def test_the_sample_names_every_setting_with_its_default() -> None:
    section = ""
    shown: dict[str, str] = {}
    unset: set[str] = set()
    for line in sample().splitlines():
        if header := re.fullmatch(r"(?:# )?\[+([\w.]+)\]+", line):
            section = header[1]
        elif setting := re.fullmatch(r"(# )?(\w+) = (.+)", line):
            key = f"{section}.{setting[2]}"
            assert key not in shown, key
            shown[key] = setting[3]
            if setting[1]:
                unset.add(key)
    tables: dict[str, type[Section]] = {
        "store.budgets": BudgetSettings,
        "server.alerts": AlertSettings,
        "server.topic_metrics": TopicMetricSettings,
    }
    parts = {f"{name}.{key}" for name, table in tables.items() for key in table.model_fields}
    assert set(shown) == set(all_keys()) - tables.keys() | parts
    defaults = Settings().model_dump(mode="json")
    for key, text in shown.items():
        if key in parts:
            continue
        part, name = key.split(".")
        default = defaults[part][name]
        if key in unset:
            assert default is None, key
        else:
            assert tomllib.loads(f"value = {text}")["value"] == default, key


def test_the_sample_loads_and_changes_nothing(tmp_path: Path) -> None:
    assert load(written(tmp_path, sample())).model_dump() == Settings().model_dump()


def test_the_sample_loads_with_every_setting_switched_on(tmp_path: Path) -> None:
    text = re.sub(r"^# (\[\[|\w+ = )", r"\1", sample(), flags=re.MULTILINE)
    settings = load(written(tmp_path, text))
    assert settings.listeners.tls_port == 8883
    assert settings.store.budgets[0].topic_filter == "sensors/#"
    none_left = [key for part in settings.model_dump().values() for key, value in part.items() if value is None]
    assert none_left == []


def test_sizes_and_durations_may_have_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBERMQ_STORE__SEGMENT_BYTES", "64 MiB")
    path = written(
        tmp_path,
        "[store]\nretention_bytes = '10GiB'\nretention_age_s = '7d'\nsegment_age_s = '90m'\n"
        "[[store.budgets]]\ntopic_filter = '#'\nbytes_max = '1.5MiB'\nexpiry_s = '1w'\n"
        "[limits]\nsession_expiry_max_s = '36h'\npacket_bytes_max = '256kib'\noutput_bytes_max = '1MB'\n",
    )
    settings = load(path)
    store, limits = settings.store, settings.limits
    assert (store.retention_bytes, store.retention_age_s) == (10 << 30, 604_800)
    assert (store.segment_bytes, store.segment_age_s) == (64 << 20, 5400)
    assert (store.budgets[0].bytes_max, store.budgets[0].expiry_s) == (3 << 19, 604_800)
    assert (limits.session_expiry_max_s, limits.packet_bytes_max) == (129_600, 256 << 10)
    assert limits.output_bytes_max == 1_000_000


def test_limits_reach_the_core_with_the_same_defaults(tmp_path: Path) -> None:
    core = Limits()
    configured = Settings().limits
    assert attributes_of(core) == attributes_of(configured)
    assert load(written(tmp_path, "[limits]\npacket_bytes_max = 1000")).limits.packet_bytes_max == 1000


def test_settings_of_mqtt_5_reach_the_protocol_with_the_same_defaults(tmp_path: Path) -> None:
    configured = Settings().mqtt5.settings()
    expected, found_defaults = attributes_of(DEFAULT_SETTINGS), attributes_of(configured)
    assert expected == found_defaults
    text = "[mqtt5]\nreceive_maximum = 7\nproperties_max = 20\nproperties_bytes_max = 2000\nserver_reference = 'other'"
    found = load(written(tmp_path, text)).mqtt5.settings()
    assert (found.receive_maximum, found.server_reference) == (7, "other")
    assert (found.properties_max, found.properties_bytes_max) == (20, 2_000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[listeners]\nport = 'x'", "listeners.port: expected a valid integer, not 'x'"),
        ("[listeners]\nport = 65536", "listeners.port: expected less than or equal to 65535, not 65536"),
        ("[listeners]\nprt = 1", "there is no setting listeners.prt, did you mean listeners.port?"),
        ("[listener]\nport = 1", "there is no section listener, did you mean listeners?"),
        ("[listner]\nport = 1", "there is no section listner, did you mean listeners?"),
        ("[storage]\nmemory = true", "there is no section storage, did you mean store?"),
        ("[server]\nport = 1", "there is no setting server.port, did you mean listeners.port?"),
        ("[store]\nretention_age = 1", "there is no setting store.retention_age, did you mean store.retention_age_s?"),
        ("[store]\nretention_bytes = '10 potatoes'", "store.retention_bytes: expected a number of bytes, or a size"),
        ("[store]\nretention_age_s = '7 years'", "store.retention_age_s: expected a number of seconds, or a duration"),
        ("[store]\nretention_bytes = '1KiB'", "store.retention_bytes: expected greater than or equal to 1048576"),
        ("listeners = 3", "listeners: expected a table of settings, not 3"),
        ("[store]\ndirectory = ''", "store.directory: expected a directory, not ''"),
        ("[store]\ndurability = 'maybe'", "store.durability: expected 'sync', 'os' or 'none', not 'maybe'"),
        ("[listeners]\nunix_mode = '9'", "listeners.unix_mode: must match pattern"),
        ("[[store.budgets]]\ncount_max = 1", "store.budgets.0.topic_filter is missing"),
        ("[[store.budgets]]\ntopic_filter = 'a#'", "store.budgets.0.topic_filter: expected a topic filter"),
        ("[[server.alerts]]\nname = 'a'", "server.alerts.0.when is missing"),
        ("[[server.alerts]]\nname = 'a'\nwhen = 'cpu > 1'", "server.alerts.0.when: expected a rule such as"),
        (ALERT + "webhook = 'file:///x'", "server.alerts.0.webhook: expected a URL such as https://"),
        (ALERT + "topic = 'a/#'", "server.alerts.0.topic: expected a topic name"),
        (ALERT + "topic = 'a/b'", "server.alerts: a: what it publishes to a/b would end the silence"),
        (
            "[[server.topic_metrics]]\nname = 'a'\ntopic_filter = 'a/#/b'",
            "server.topic_metrics.0.topic_filter: expected a topic filter",
        ),
        (
            "[[server.topic_metrics]]\nname = 'a'\ntopic_filter = 'a'\n" * 2,
            "server.topic_metrics: the name 'a' is used twice",
        ),
        (ALERT * 2, "server.alerts: the name 'a' is used twice"),
        (
            "[mqtt5]\nresponse_information = 'r/#'",
            "mqtt5.response_information: expected a topic name to which levels can be added, such as responses/%c,"
            " not 'r/#'",
        ),
        (
            "[mqtt5]\nresponse_information = 'r/%x'",
            "mqtt5.response_information: expected a topic name with %u, %c or %% (response_information: '%x' is"
            " unknown, expected %u, %c, or %% for a percent sign), not 'r/%x'",
        ),
        ("[mqtt5]\nreceive_maximum = 0", "mqtt5.receive_maximum: expected greater than or equal to 1, not 0"),
        ("[limits]\ninflight_max = 0", "limits.inflight_max: expected greater than or equal to 1, not 0"),
    ],
)
def test_a_wrong_setting_is_named_with_its_file_and_what_was_expected(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    assert sentence(path).startswith(f"{path}: {expected}")


def test_a_wrong_value_is_blamed_on_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "[listeners]\nport = 1883\n")
    assert sentence(path, {"listeners": {"port": -1}}).startswith("--port: listeners.port: expected greater than")
    monkeypatch.setenv("EMBERMQ_LISTENERS__PORT", "many")
    assert sentence(path).startswith("environment variable EMBERMQ_LISTENERS__PORT: listeners.port: expected")
    monkeypatch.setenv("EMBERMQ_LISTENERS__PORT", "1")
    monkeypatch.setenv("EMBERMQ_LISTENERS__PROT", "1")
    assert "EMBERMQ_LISTENERS__PROT: there is no setting listeners.prot" in sentence(path)
    monkeypatch.delenv("EMBERMQ_LISTENERS__PROT")
    monkeypatch.setenv("EMBERMQ_LISTENER__PORT", "1")
    assert sentence(path).startswith("environment variable EMBERMQ_LISTENER__PORT: there is no section listener")
    monkeypatch.delenv("EMBERMQ_LISTENER__PORT")
    monkeypatch.setenv("EMBERMQ_STORE__DIRECTORY", "")
    assert sentence(path).startswith("environment variable EMBERMQ_STORE__DIRECTORY: store.directory: expected a dir")
    monkeypatch.delenv("EMBERMQ_STORE__DIRECTORY")
    monkeypatch.setenv("EMBERMQ_STORE__BUDGETS", "[oops")
    assert sentence(path).startswith("environment")


def test_other_variables_with_the_prefix_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBERMQ_SOMETHING", "1")
    assert load().listeners.port == 1883


def test_a_file_that_is_missing_or_no_toml_is_named(tmp_path: Path) -> None:
    assert sentence(tmp_path / "none.toml") == f"cannot read {tmp_path / 'none.toml'}: No such file or directory"
    path = written(tmp_path, "[listeners\n")
    assert sentence(path).startswith(f"{path} is not TOML: ") and "line 1" in sentence(path)
    path.write_bytes(b"\xff\xfe")
    assert sentence(path).startswith(f"{path} is not TOML: ")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"listeners": {"tls_port": 8883}}, "need listeners.certificate and listeners.key"),
        ({"listeners": {"wss_port": 8883, "certificate": "c"}}, "need listeners.certificate and listeners.key"),
        ({"listeners": {"require_client_certificate": True}}, "need listeners.client_ca"),
        ({"access": {"certificate_as_user": True}}, "need listeners.client_ca"),
        ({"listeners": {"tcp": False}}, "nothing to listen on"),
        ({"store": {"recording": "filters"}}, "at least one filter in store.recording_filters"),
        ({"listeners": {"host": "0.0.0.0"}}, "listeners.host 0.0.0.0 is reachable from other machines"),
        ({"listeners": {"host": "broker.example"}}, "is reachable from other machines"),
        ({"access": {"allow_anonymous": False}}, "no client can connect"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(flags: dict[str, dict[str, Any]], expected: str) -> None:
    assert expected in sentence(None, flags)


@pytest.mark.parametrize(
    ("flags", "allowed"),
    [
        ({}, True),
        ({"listeners": {"host": "::1"}}, True),
        ({"listeners": {"host": "localhost"}}, True),
        ({"listeners": {"host": "0.0.0.0"}, "access": {"allow_anonymous": True}}, True),
        ({"listeners": {"host": "0.0.0.0"}, "access": {"password_file": "p"}}, False),
        ({"access": {"password_file": "p"}}, False),
        ({"access": {"password_file": "p", "allow_anonymous": True}}, True),
        ({"listeners": {"host": "0.0.0.0", "tcp": False, "unix_path": "s"}}, True),
    ],
)
def test_anonymous_clients_need_loopback_or_an_explicit_word(flags: dict[str, dict[str, Any]], allowed: bool) -> None:
    assert load(None, flags).anonymous_allowed() is allowed


def test_loopback_is_told_from_the_rest() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example", ""))
    assert (shown("10.0.0.1", 1883), shown("::1", 1883)) == ("10.0.0.1:1883", "[::1]:1883")


def test_a_keep_alive_cap_holds_clients_that_asked_for_more_or_none() -> None:
    assert [Limits().keep_alive_s(asked) for asked in (0, 60, 65_535)] == [0, 60, 65_535]
    assert [Limits(keep_alive_max_s=100).keep_alive_s(asked) for asked in (0, 60, 101)] == [100, 60, 100]


def test_a_session_expiry_cap_holds_sessions_that_asked_for_more() -> None:
    assert Limits(session_expiry_max_s=SESSION_NEVER_EXPIRES).session_expiry_s(SESSION_NEVER_EXPIRES) == 0xFFFF_FFFF
    assert [Limits(session_expiry_max_s=10).session_expiry_s(asked) for asked in (0, 5, 11)] == [0, 5, 10]


def test_the_settings_file_is_found_in_the_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, system, here = tmp_path / "home", tmp_path / "etc" / "ember.toml", tmp_path / "here"
    user = home / ".config" / "embermq" / "ember.toml"
    for directory in (here, user.parent, system.parent):
        directory.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(config, "SYSTEM_FILE", system)
    assert config.found_file() is None
    system.touch()
    assert config.found_file() == system
    user.touch()
    assert config.found_file() == user
    Path("ember.toml").touch()
    assert config.found_file() == Path("ember.toml")
    Path("ember.toml").unlink()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert config.found_file() == system


def test_no_setting_is_a_secret_itself() -> None:
    """Passwords and tokens are in files that a setting names, so settings can be shown and be in the environment."""
    assert [key for key in all_keys() if is_secret(key)] == []
