"""The pipeline's progress over HTTP: from a file that anything may be wrong with."""

import json
from pathlib import Path

import pytest

from embermq.http.resources.pipeline.progress import facts_of, progress_in


def test_lags_are_as_of_now(tmp_path: Path) -> None:
    (tmp_path / "_embermq").mkdir()
    progress = {
        "state": "running",
        "written": 1_700_000_000.5,
        "log_end": 90,
        "jobs": {"messages": {"name": "messages", "offset": 80, "records": 79, "rate": 1.5, "lag": 10, "batches": 2}},
    }
    (tmp_path / "_embermq" / "progress.json").write_text(json.dumps(progress))
    found = facts_of(progress_in(tmp_path), 100)
    assert (found.state, found.written) == ("running", "2023-11-14T22:13:20.500000Z")
    (job,) = found.jobs
    assert (job.name, job.offset, job.records, job.rate, job.lag) == ("messages", 80, 79, 1.5, 20)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"jobs": 3}', '{"jobs": {"a": 1}, "written": "x", "state": 1}'])
def test_a_file_that_cannot_be_read_is_no_progress(tmp_path: Path, text: str) -> None:
    (tmp_path / "_embermq").mkdir()
    (tmp_path / "_embermq" / "progress.json").write_text(text)
    assert facts_of(progress_in(tmp_path), 1).model_dump(exclude_none=True) == {"jobs": []}


def test_there_may_be_no_lake(tmp_path: Path) -> None:
    assert progress_in(None) == progress_in(tmp_path / "none") == {}
    assert facts_of({"jobs": {"a": {}}}, 1).jobs[0].lag is None
