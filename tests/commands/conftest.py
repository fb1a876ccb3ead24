"""A data directory for the commands, with a running server or a stopped one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ember_command import DataPlace, server


@pytest.fixture(params=["running", "stopped"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DataPlace]:
    data = tmp_path / "data"
    with server(data) as broker:
        if request.param == "running":
            yield DataPlace(data, broker)
            return
    yield DataPlace(data, None)
