"""Real readings through the server: a tenth of the file, explored to a plot, as-of equal to the file."""

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.conftest import TEST_SETTINGS

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(os.environ.get("BEIJING_AIR", ROOT.parent / "shared" / "data" / "beijing-air.csv.gz"))
HOURS_OF_A_TENTH = 3506


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[SparkSession]:
    """Half a million rows: here it pays to compile the queries."""
    changed = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    for key, value in changed.items():
        spark.conf.set(key, value)
    yield spark
    for key in changed:
        spark.conf.set(key, TEST_SETTINGS[key])


@pytest.mark.timeout(300)
@pytest.mark.skipif(not FILE.exists(), reason="beijing-air.csv.gz is not here; BEIJING_AIR says where it is")
@pytest.mark.long
def test_a_tenth_of_the_file_is_retained_as_the_file_says(
    compiling: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("beijing_air", ROOT / "examples" / "beijing_air.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    out = tmp_path / "out"
    example.main([str(FILE), "--hours", str(HOURS_OF_A_TENTH), "--out", str(out), "--questions", "5"])
    said = capsys.readouterr().out
    readings = sum(len(rows) for _, rows in example.hours_of(FILE, HOURS_OF_A_TENTH))
    assert f"{readings + HOURS_OF_A_TENTH:,} messages through the server" in said
    numbers, texts = (int(number.replace(",", "")) for number in re.findall(r"([\d,]+) (?:numbers|payloads)", said))
    assert numbers + texts == readings
    assert re.search(r"as of 5 evenings: 7\d\d retained messages equal the file", said)
    assert (out / "air.html").read_text().count("<polyline") == 2
    assert (out / "report.html").read_text().count("<svg") > 2
