"""`ember pipeline status | query` find the lake and the log by the settings; what an option names wins."""

from pathlib import Path

import pytest

from support.ember_command import ember, sentence
from support.local_lake import local_lake
from support.recorded import Recorder

COUNT = "select count(*) as n from messages"


def recorded(directory: Path, messages: int) -> None:
    """A data directory and a lake of its log."""
    made = Recorder(directory / "data")
    for number in range(messages):
        made.publish(f"t/{number}", b"1", retain=True)
    made.flush()
    local_lake(directory / "lake", made)
    made.close()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of the server `a` of two."""
    recorded(tmp_path / "a", 2)
    recorded(tmp_path / "b", 3)
    file = tmp_path / "settings.toml"
    file.write_text('[store]\ndirectory = "a/data"\n[http]\nlake = "a/lake"\n')
    monkeypatch.chdir(tmp_path)
    return file


def test_the_settings_name_lake_and_log(config: Path) -> None:
    assert "log: next offset 3" in ember("pipeline", "status", "--config", config).lines
    assert ember("pipeline", "query", COUNT, "--config", config, "--json").lines == ['{"n": 2}']
    by_environment = {"EMBERMQ_HTTP__LAKE": "b/lake", "EMBERMQ_STORE__DIRECTORY": "b/data"}
    assert "log: next offset 4" in ember("pipeline", "status", environment=by_environment).lines


def test_options_win(config: Path) -> None:
    found = ember("pipeline", "status", "--config", config, "--lake", "b/lake", "--data", "b/data")
    assert "log: next offset 4" in found.lines
    assert ember("pipeline", "query", COUNT, "--config", config, "--lake", "b/lake", "--json").lines == ['{"n": 3}']


def test_without_settings_the_lake_is_the_default_and_knows_its_log(config: Path) -> None:
    assert sentence(ember("pipeline", "status")) == "ember-lake is no lake: `ember pipeline run` makes one"
    (config.parent / "b" / "lake").rename(config.parent / "ember-lake")
    (config.parent / "ember-lake" / "_embermq" / "data.json").write_text('{"data": "b/data"}')
    assert "log: next offset 4" in ember("pipeline", "status").lines
    config.write_text("[http]\nport = 1\n")  # names neither
    assert "log: next offset 4" in ember("pipeline", "status", "--config", config).lines


@pytest.mark.parametrize("command", [("status",), ("query", COUNT), ("audit",)])
def test_a_wrong_settings_file_is_one_sentence(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "ember.toml"
    file.write_text("[http]\nlaek = 1\n")
    assert "laek" in sentence(ember("pipeline", *command, "--config", file))
