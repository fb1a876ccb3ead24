"""The section [pipeline]: what it has, and the one sentence that a wrong setting gets. No Spark is needed."""

from datetime import timedelta
from pathlib import Path

import pytest

from embermq.config import load, load_unchecked
from embermq.errors import ConfigError
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.settings import PipelineSettings, window_us
from embermq.lake.typed_tables import TypedTable

NUMBERS = 'name = "x"\nfilter = "a"\nformat = "number"'


def read(directory: Path, text: str) -> PipelineSettings:
    config = directory / "ember.toml"
    config.write_text(text, encoding="utf-8")
    return load_unchecked(config).pipeline


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "Messages"\nfilter = "a"\nformat = "number"', "name: expected small letters, digits and _, and none"),
        ('name = "messages"\nfilter = "a"\nformat = "number"', "name: expected small letters"),
        ('name = "x"\nfilter = "a#"\nformat = "number"', "filter: expected an MQTT topic filter"),
        ('name = "x"\nfilter = "a"\nformat = "xml"', "format: expected 'json', 'cbor', "),
        ('name = "x"\nfilter = "a"\nformat = "json"', "schema: expected columns as in 'a double, b string'"),
        (
            f'{NUMBERS}\nschema = "a int"',
            "schema: expected columns as in 'a double, b string', for json, cbor, msgpack, avro, protobuf and csv only",
        ),
        ('name = "x"\nfilter = "a"\nformat = "json"\nschema = "a nosuchtype"', "schema: expected a type"),
        ('name = "x"\nfilter = "a"\nformat = "avro"\nschema = "a int"', "schema_file: expected a file (Avro: also"),
        ('name = "x"\nfilter = "a"\nformat = "cbor"\nschema = "a int"\nmessage = "m"', "message: expected the name"),
        ('name = "x"\nfilter = "a"\nformat = "text"\nexplode = "e"', "explode: expected none, since only json"),
        ('name = "x"\nfilter = "a"\nformat = "json"\nschema = "a array<binary>"', "is binary, and json has no bytes"),
        ('name = "x"\nfilter = "a"\nformat = "csv"\nschema = "a array<int>"', "and a value of csv is one text"),
        (f'{NUMBERS}\nlevels = ["topic"]', "levels: the column 'topic' is used twice"),
        (f"{NUMBERS}\nsort = 1", "there is no setting pipeline.tables.0.sort"),
        ("name = 3", "name: expected a valid string, not 3"),
    ],
)
def test_a_bad_typed_table_names_the_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"[[pipeline.tables]]\n{text}\n")
    assert (
        said in str(caught.value) and "ember.toml: " in str(caught.value) and "pipeline.tables.0" in str(caught.value)
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("compact_files = 1", "pipeline.compact_files: expected greater than or equal to 2, not 1"),
        ("vacuum_hours = 0.5", "pipeline.vacuum_hours: expected greater than or equal to 1, not 0.5"),
        ('fresh_s = "0s"', "pipeline.fresh_s: expected greater than 0"),
        ("fresh_s = inf", "pipeline.fresh_s: expected a finite number"),
        ('memory = "1 gig"', "pipeline.memory: "),
        ('window = "5 minuts"', "pipeline.window: expected a length such as '5 minutes'"),
        ('lake = "ftp://host/x"', "pipeline.lake: expected a directory, or a URL of hdfs or s3a, not 'ftp://host/x'"),
        ('lake = ""', "pipeline.lake: "),
        ('retention = "90d"', "pipeline.retention: expected a valid dictionary"),
        ('[pipeline.retention]\nretained = "1d"', "pipeline.retention: retained: expected one of messages, "),
        ("[pipeline.retention]\nmessages = 90", "pipeline.retention.messages: expected an age such as '90d' or '36h'"),
        ("compaction = 1", "there is no setting pipeline.compaction, did you mean pipeline.compact_files?"),
        ("tables = 7", "pipeline.tables: expected a list, not 7"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"[pipeline]\n{text}\n")
    assert said in str(caught.value)


def test_two_tables_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"pipeline\.tables: the name 'x' is used twice"):
        read(tmp_path, f"[[pipeline.tables]]\n{NUMBERS}\n" * 2)


def test_settings_are_read_with_ages_for_typed_tables_too(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        '[pipeline]\nvacuum_hours = 3\nfresh_s = "2m"\n[pipeline.retention]\nmessages = "90d"\nx_rejects = "36h"\n'
        f"[[pipeline.tables]]\n{NUMBERS}\n",
    )
    assert found == PipelineSettings(
        vacuum_hours=3,
        fresh_s=120,
        tables=(TypedTable(name="x", topic_filter="a", format="number"),),
        retention={"messages": timedelta(days=90), "x_rejects": timedelta(hours=36)},
    )


def test_a_table_of_the_lake_that_was_made_from_other_settings_is_refused(tmp_path: Path) -> None:
    settings = PipelineSettings(lake=str(tmp_path), tables=(TypedTable(name="x", topic_filter="a", format="number"),))
    settings.check_tables()  # there is no such table
    (tmp_path / "x" / "_delta_log").mkdir(parents=True)
    (tmp_path / "x" / "_delta_log" / "0.json").touch()
    Lake(tmp_path).files.write("_embermq/definitions/x.json", '{"filter": "b"}')
    with pytest.raises(LakeError, match="was built with filter 'b', the settings say 'a'"):
        settings.check_tables()


def test_the_page_shows_the_lake_of_the_pipeline_unless_it_has_its_own(tmp_path: Path) -> None:
    config = tmp_path / "ember.toml"
    for text, place, directory in (
        ("", "ember-lake", Path("ember-lake")),
        ('[pipeline]\nlake = "there"', "there", Path("there")),
        ('[pipeline]\nlake = "s3a://bucket/lake"', "s3a://bucket/lake", None),
        ('[http]\nlake = "here"', "here", Path("here")),
    ):
        config.write_text(text, encoding="utf-8")
        settings = load(config)
        assert (settings.lake_place(), settings.lake_directory()) == (place, directory)


@pytest.mark.parametrize(
    ("length", "expected_us"),
    [("5 minutes", 300_000_000), ("1 HOUR  30 minutes", 5_400_000_000), ("1 week", 604_800_000_000)],
)
def test_the_length_of_a_window(length: str, expected_us: int) -> None:
    assert window_us(length) == expected_us
