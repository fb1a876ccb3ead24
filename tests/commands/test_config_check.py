"""`ember config check`: which file it checks, and what it says of rules that no server could check."""

from pathlib import Path

import pytest

from support.ember_command import ember, sentence


def test_it_finds_the_file_that_a_server_would_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = {"XDG_CONFIG_HOME": str(tmp_path / "user")}
    assert ember("config", "check", environment=found).text.endswith("all settings are valid\n")
    users = tmp_path / "user" / "embermq" / "ember.toml"
    users.parent.mkdir(parents=True)
    users.write_text("[server]\nsys_interval_s = 5\n")
    assert ember("config", "check", environment=found).text == f"{users}: all settings are valid\n"
    Path("ember.toml").write_text("[server]\nsys_interval_s = -1\n")
    assert sentence(ember("config", "check", environment=found)).startswith("ember.toml: server.sys_interval_s: ")
    named = found | {"EMBERMQ_CONFIG": str(users)}
    assert ember("config", "check", environment=named).text == f"{users}: all settings are valid\n"


def test_an_alert_about_a_metric_that_is_not_there_is_refused_with_near_ones(tmp_path: Path) -> None:
    path = tmp_path / "ember.toml"
    path.write_text(
        "[[server.alerts]]\nname = 'disk'\nwhen = 'embermq_disk_fre_bytes < 1GiB'\n"
        "[[server.alerts]]\nname = 'right'\nwhen = 'embermq_disk_free_bytes < 1GiB'\n"
    )
    said = sentence(ember("config", "check", path))
    assert said.startswith(f"{path}: server.alerts: the alert disk: there is no metric embermq_disk_fre_bytes, did you")
    assert "embermq_disk_free_bytes" in said
    path.write_text("[[server.alerts]]\nname = 'other'\nwhen = 'process_zzz > 1'\n")
    assert sentence(ember("config", "check", path)).endswith("metric process_zzz, docs/http.md lists them")
    path.write_text("[[server.alerts]]\nname = 'rate'\nwhen = 'embermq_errors_total > 1'\n")
    assert ember("config", "check", path).code == 0
