"""The settings of rollups, and the one sentence that a wrong one gets. No Spark is needed."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from embermq.config import load_unchecked
from embermq.errors import ConfigError
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.rollups import ROLLUPS_MAX
from embermq.lake.schema import ROLLUP, TOPIC_STATS, definition_of, rollup_table, typed_table
from embermq.lake.settings import PipelineSettings

TABLES = """
[[pipeline.tables]]
name = "air"
filter = "air/+"
format = "number"
[[pipeline.tables]]
name = "status"
filter = "status/+"
format = "json"
schema = "state string, load struct<cpu: double>, at timestamp"
[[pipeline.tables]]
name = "metrics"
filter = "spBv1.0/#"
format = "sparkplug"
"""
HOURS = 'name = "hours"\ntable = "air"\nevery = "hour"'
LOADS = 'name = "loads"\ntable = "status"\nvalue = "load.cpu"\nevery = "day"'


def read(directory: Path, *rollups: str, more: str = "") -> PipelineSettings:
    config = directory / "ember.toml"
    blocks = "".join(f"[[pipeline.rollups]]\n{rollup}\n" for rollup in rollups)
    config.write_text(TABLES + blocks + more, encoding="utf-8")
    return load_unchecked(config).pipeline


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "Hours"\ntable = "air"\nevery = "hour"', "rollups.0.name: expected small letters"),
        ('name = "hours"\ntable = "water"\nevery = "hour"', "hours: table: expected a typed table, of another format"),
        ('name = "hours"\ntable = "metrics"\nevery = "hour"', "format than sparkplug (air, status)"),
        ('name = "hours"\ntable = "air"', "rollups.0.every is missing"),
        ('name = "hours"\ntable = "air"\nevery = "week"', "every: expected 'minute', 'hour' or 'day', not 'week'"),
        ('name = "hours"\ntable = "status"\nevery = "hour"', "value: value: expected a column of status with numbers"),
        (LOADS.replace("load.cpu", "state"), "value: state: expected a column of status with numbers, or a field"),
        (LOADS.replace("load.cpu", "load"), "value: load: expected a column of status with numbers, or a field of"),
        (LOADS.replace("load.cpu", "load.gpu"), "value: load.gpu: expected a column of status with numbers"),
        (f'{LOADS}\ntime = "state"', "time: state: expected a column of status with the type timestamp"),
        (f'{HOURS}\ngap_s = "10s"', "rollups.0.gap_s: expected 36 to 3600 seconds, not '10s'"),
        (f'{HOURS}\ngap_s = "2h"', "gap_s: expected 36 to 3600 seconds, not '2h'"),
        (f"{HOURS}\ngap_s = nan", "gap_s: expected a finite number"),
        (f'{HOURS}\ngap_s = "soon"', "gap_s: expected"),
        (f"{HOURS}\nfilter = 1", "there is no setting pipeline.rollups.0.filter"),
        (HOURS.replace("hours", "air_rejects"), "pipeline.rollups: the name 'air_rejects' is used twice"),
    ],
)
def test_a_wrong_rollup_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value) and "pipeline.rollups" in str(caught.value)


def test_there_are_at_most_so_many_rollups(tmp_path: Path) -> None:
    many = [HOURS.replace("hours", f"hours_{number}") for number in range(ROLLUPS_MAX + 1)]
    assert len(read(tmp_path, *many[1:]).rollups) == ROLLUPS_MAX
    with pytest.raises(ConfigError, match=r"pipeline\.rollups: "):
        read(tmp_path, *many)


def test_a_rollup_has_an_age_of_its_own(tmp_path: Path) -> None:
    settings = read(tmp_path, HOURS, more='[pipeline.retention]\nmessages = "30d"\nhours = "3650d"\n')
    assert settings.retention["hours"] == timedelta(days=3650)
    with pytest.raises(ConfigError, match=r"pipeline\.retention: days: expected one of messages, .*, hours"):
        read(tmp_path, HOURS, more='[pipeline.retention]\ndays = "3650d"\n')
    # It is judged by the end of the window, whatever the name of the table is.
    assert definition_of("hours", ROLLUP.names) == rollup_table("hours")
    assert definition_of("hours", ROLLUP.names).age_column == "window_end"
    assert definition_of("other", typed_table("other", ()).names).age_column == "timestamp"
    assert definition_of("topic_stats", TOPIC_STATS.names) == TOPIC_STATS


def test_a_table_of_the_lake_that_was_made_from_other_settings_is_refused(tmp_path: Path) -> None:
    settings = read(tmp_path, LOADS, more=f'[pipeline]\nlake = "{tmp_path}"\n')
    settings.check_tables()  # there is no such table
    (tmp_path / "loads" / "_delta_log").mkdir(parents=True)
    (tmp_path / "loads" / "_delta_log" / "0.json").touch()
    definition = dict(settings.rollups[0].definition(settings.tables[1]))
    assert definition["gap_s"] == 8640
    for key, before in (("every", "hour"), ("value", "load.gpu"), ("gap_s", 60.0), ("filter", "#")):
        written = json.dumps(definition | {key: before})
        Lake(tmp_path).files.write("_embermq/definitions/loads.json", written)
        said = f"the table loads .* was built with {key} {before!r}, the settings say .*--rebuild loads"
        with pytest.raises(LakeError, match=said):
            settings.check_tables()
