"""The end of `ember serve`: no request to an archive keeps the process."""

import logging
import re
import resource
from pathlib import Path

import pytest

from embermq.commands.serve import ARCHIVE_THREADS, FILES_OF_THE_SERVER, _raise_file_limit

SOURCE = Path(__file__).parent.parent.parent / "src" / "embermq"
LOG_READER = "ember-history"  # waits for the disk only


def test_every_thread_that_may_wait_for_an_archive_is_known() -> None:
    modules = [path for place in ("archive", "store/history") for path in (SOURCE / place).rglob("*.py")]
    names = {name for path in modules for name in re.findall(r'"(ember-[a-z-]+)', path.read_text())}
    assert {"ember-archive", "ember-archived", "ember-fetch", "ember-as-of"} <= names
    assert [name for name in sorted(names) if not name.startswith((*ARCHIVE_THREADS, LOG_READER))] == []


@pytest.mark.parametrize(
    ("hard", "connections_max", "expected"),
    [
        (20_000, 100_000, 0),  # the default, and room enough for a newcomer
        (1_024_000, 110_000, 0),
        (20_000, 110_000, 1),
        (4_096, 100_000, 1),
        (4_096, 1_000, 0),
    ],
)
def test_a_limit_of_files_is_said_only_where_it_matters(
    hard: int,
    connections_max: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    with caplog.at_level(logging.INFO, "embermq"):
        _raise_file_limit(connections_max)
    assert raised == [(min(hard, connections_max + FILES_OF_THE_SERVER), hard)]
    assert len(caplog.records) == expected
    for record in caplog.records:
        assert record.levelno == logging.WARNING and "raise its limit of open files" in record.getMessage()
