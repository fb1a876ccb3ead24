"""A history that was trimmed and archived, made once for all tests."""

import shutil
from pathlib import Path

import pytest

from support import archived_history
from support.archive_places import gs_query as gs_query
from support.archive_places import place as place
from support.archive_places import s3_query as s3_query


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    archived_history.make(place)
    return place


@pytest.fixture
def place_of_all(made: Path, tmp_path: Path) -> Path:
    """A directory with `data`, its `archive`, and `kept`, whose log has everything."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path
