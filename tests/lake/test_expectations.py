"""The settings of expectations, and the one sentence that a wrong one gets. No Spark is needed."""

from datetime import timedelta
from pathlib import Path

import pytest

from embermq.config import load_unchecked
from embermq.errors import ConfigError
from embermq.lake.errors import LakeError
from embermq.lake.expectations import EXPECTATIONS_MAX, expected
from embermq.lake.lake import Lake
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
schema = "state string, load struct<cpu: double>"
"""
AIR = 'table = "air"\ncolumn = "value"'
STATE = 'table = "status"\ncolumn = "state"'


def read(directory: Path, *blocks: str, more: str = "") -> PipelineSettings:
    config = directory / "ember.toml"
    text = "".join(f"[[pipeline.expectations]]\n{block}\n" for block in blocks)
    config.write_text(TABLES + text + more, encoding="utf-8")
    return load_unchecked(config).pipeline


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (AIR, "expectations.0: expected one of min, max, rate_max, not_null and allowed"),
        (f"{AIR}\nmin = 3\nmax = 2", "expectations.0: min: expected at most max"),
        (f"{AIR}\nrate_max = 0", "expectations.0.rate_max: expected greater than 0"),
        (f"{AIR}\nmin = nan", "expectations.0.min: expected a finite number"),
        (f"{AIR}\nabove = 1", "there is no setting pipeline.expectations.0.above"),
        (f'{AIR}\nallowed = ["1"]', "column: value: expected a column of air of the type string"),
        (f"{STATE}\nmin = 1", "column: state: expected a column of status with numbers"),
        ('table = "status"\ncolumn = "load.gpu"\nmin = 1', "column: load.gpu: expected a column of status, or a field"),
        ('table = "water"\ncolumn = "value"\nmin = 1', "table: expected a typed table, of another format"),
    ],
)
def test_a_wrong_expectation_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value) and "pipeline.expectations" in str(caught.value)


def test_a_column_has_one_block(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the column value of air is there twice"):
        read(tmp_path, f"{AIR}\nmin = 1", f"{AIR}\nmax = 2")
    with pytest.raises(ConfigError, match=r"pipeline\.expectations: "):
        read(tmp_path, *([f"{AIR}\nmin = 1"] * (EXPECTATIONS_MAX + 1)))


def test_the_expectations_of_a_table_are_one_job_with_an_age(tmp_path: Path) -> None:
    blocks = (
        f"{AIR}\nmin = 1\nrate_max = 2",
        f"{STATE}\nnot_null = true",
        'table = "status"\ncolumn = "load"\nnot_null = true',
    )
    found = read(tmp_path, *blocks, more='[pipeline.retention]\nair_violations = "10d"\n')
    assert found.retention == {"air_violations": timedelta(days=10)}
    made = expected(found.tables, found.expectations)
    assert [(one.name, len(one.expectations), [table.name for table in one.tables()]) for one in made] == [
        ("air_violations", 1, ["air_violations", "air_last_values"]),
        ("status_violations", 2, ["status_violations"]),
    ]


def test_violations_of_other_expectations_are_refused(tmp_path: Path) -> None:
    settings = read(tmp_path, f"{AIR}\nmin = 1", more=f'[pipeline]\nlake = "{tmp_path}"\n')
    settings.check_tables()  # there is no such table
    (tmp_path / "air_violations" / "_delta_log").mkdir(parents=True)
    (tmp_path / "air_violations" / "_delta_log" / "0.json").touch()
    Lake(tmp_path).files.write("_embermq/definitions/air_violations.json", '{"expectations": []}')
    said = r"the table air_violations .* was built with expectations \[\], .*--rebuild air_violations"
    with pytest.raises(LakeError, match=said):
        settings.check_tables()
