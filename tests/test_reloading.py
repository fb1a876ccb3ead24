"""What a reload finds: files that have changed since the last one, and settings that wait for a restart."""

from pathlib import Path

from embermq.config import load
from embermq.errors import ConfigError
from embermq.http.options import ReloadReport
from embermq.reloading import Reloading
from embermq.settings import Settings


def test_a_change_is_reported_once(tmp_path: Path) -> None:
    users, key = tmp_path / "users", tmp_path / "key"
    users.write_text("ann")
    reloading = Reloading({"users": (users,), "certificate": (None, key), "tokens": (None,)}, {})
    assert reloading.report(["users"]) == ReloadReport(["users"])
    users.write_text("bob")
    key.write_text("new")
    assert reloading.report([]).changed == ["users", "certificate"]
    assert reloading.report([]).changed == []
    key.unlink()
    assert reloading.report([]).changed == ["certificate"]


def test_settings_that_differ_need_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "ember.toml"
    path.write_text("[listeners]\nport = 1884\n")
    reloading = Reloading({}, load(path).model_dump(mode="json"), lambda: load(path))
    assert reloading.report([]).needs_restart == []
    path.write_text('[listeners]\nport = 1885\nws_port = 9001\n[store]\nrecording_filters = ["' + "a" * 100 + '"]\n')
    long = '["' + "a" * 58 + "..."
    assert reloading.report([]).needs_restart == [
        "listeners.port is 1884, the settings say 1885",
        "listeners.ws_port is not set, the settings say 9001",
        f"store.recording_filters is [], the settings say {long}",
    ]


def test_settings_that_cannot_be_read_are_said() -> None:
    def wrong() -> Settings:
        raise ConfigError("ember.toml is not TOML")

    found = Reloading({}, {}, wrong).report(["tokens"])
    assert found == ReloadReport(["tokens"], settings_problem="ember.toml is not TOML")
