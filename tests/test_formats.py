"""The table of stored formats (docs/formats.md) has the versions of the code."""

import re
from pathlib import Path

import embermq
from embermq.archive.manifest import FORMAT as ARCHIVE_FORMAT
from embermq.lake.lake import LAKE_FORMAT
from embermq.store.log.blocks import FORMAT_VERSION
from embermq.store.state.state import SCHEMA_VERSION

ROOT = Path(__file__).parent.parent


def test_the_table_has_the_versions_that_are_written() -> None:
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs" / "formats.md").read_text().splitlines() if "|" in line]
    versions = {row[0].strip(): row[2].strip() for row in rows[2:]}
    assert versions == {
        "log": str(FORMAT_VERSION),
        "checkpoint": str(FORMAT_VERSION),
        "topic index": "none: Arrow",
        "state": str(SCHEMA_VERSION),
        "archive, backup": str(ARCHIVE_FORMAT),
        "lake": str(LAKE_FORMAT),
    }


def test_all_places_have_the_same_version() -> None:
    version = embermq.__version__
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert f"`ember {version} (compiled)`" in (ROOT / "docs" / "building.md").read_text()
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0].startswith(version)
