"""The pause of a pipeline: a file in the lake."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from embermq.commands.pipeline import app
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.pause import PAUSE_FILE, go_on, is_paused, pause, paused_by


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    lake.open()
    return lake


def test_a_pause_is_there_until_somebody_goes_on(lake: Lake) -> None:
    assert not is_paused(lake) and paused_by(lake) is None
    assert pause(lake, "ann") and not pause(lake, "bob")
    found = paused_by(Lake(lake.place))
    assert found is not None and found[1] == "ann" and found[0] > 1_700_000_000_000_000
    assert go_on(lake) and not go_on(lake) and not is_paused(lake)


@pytest.mark.parametrize("text", ["", "[]", '{"since_us": "x", "by": 3}', "\udcff"])
def test_a_file_that_cannot_be_read_pauses_too(lake: Lake, text: str) -> None:
    (lake.directory / PAUSE_FILE).write_bytes(text.encode(errors="surrogateescape"))
    assert is_paused(lake) and paused_by(lake) == (0, "")


def test_what_is_no_lake_and_a_lake_at_a_url_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is no lake"):
        pause(Lake(tmp_path / "none"), "ann")
    with pytest.raises(LakeError, match="stop its pipeline instead"):
        pause(Lake("s3a://bucket/lake"), "ann")
    with pytest.raises(LakeError, match="stop its pipeline instead"):
        go_on(Lake("s3a://bucket/lake"))
    assert not is_paused(Lake("s3a://bucket/lake"))


def test_the_commands_pause_and_go_on(lake: Lake) -> None:
    def said(command: str) -> str:
        return CliRunner().invoke(app, [command, "--lake", lake.place], catch_exceptions=False).output

    assert said("pause") == "paused from the next batch on\n"
    assert json.loads((lake.directory / PAUSE_FILE).read_text())["by"]
    assert said("pause") == "it was paused already\n"
    assert said("go-on") == "it goes on\n"
    assert said("go-on") == "it was not paused\n"
