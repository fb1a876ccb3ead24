"""`ember pipeline run --once` on a log that grows, and typed tables whose settings change, each run a process."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embermq.config import load_unchecked
from embermq.lake.errors import LakeError
from support.pipeline_process import PipelineProcess
from support.recorded import Recorder

NUMBERS = '[[pipeline.tables]]\nname = "numbers"\nfilter = "t/+"\nformat = "number"\nlevels = ["", "which"]\n'
DOCUMENTS = '[[pipeline.tables]]\nname = "docs"\nfilter = "d/+"\nformat = "json"\nschema = "a int, b  string"\n'
ONLY = ("--only", "messages", "--only", "numbers", "--only", "docs")


class Place:
    """A log that grows while the first run reads it, and the lake of that run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.lake = directory / "lake"
        self.config = directory / "ember.toml"
        self.made = Recorder(self.data)

    def run(self, settings: str, *arguments: str) -> tuple[int, str]:
        """Run to the end of the log: the exit code, and all that was printed."""
        self.config.write_text(settings)
        with PipelineProcess(self.data, self.lake, "--once", "--config", str(self.config), *arguments) as pipeline:
            code = pipeline.process.wait(300)
        return code, "".join(pipeline.said)

    def rows(self, name: str) -> list[dict[str, Any]]:
        deltalake = pytest.importorskip("deltalake")
        found: list[dict[str, Any]] = deltalake.DeltaTable(str(self.lake / name)).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: int(row["offset"]))

    def progress(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.lake / "_embermq" / "progress.json").read_text())
        return found


@pytest.fixture(scope="module")
def place(scratch: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("once"))
    done = threading.Event()

    def publish() -> None:
        number = 0
        while not done.wait(0.02):
            made.made.publish(f"t/{number % 3}", b"%d" % number)
            made.made.publish(f"d/{number % 3}", b'{"a":%d}' % number)
            made.made.flush()
            number += 1

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        code, said = made.run(NUMBERS + DOCUMENTS, *ONLY)
    finally:
        done.set()
        publishing.join()
    assert code == 0, said
    yield made
    made.made.close()


def test_all_tables_end_where_the_log_ended_at_the_start(place: Place) -> None:
    ends = {name: job["offset"] for name, job in place.progress()["jobs"].items()}
    (end,) = set(ends.values())
    assert len(ends) == 3 and end < place.made.log.next_offset
    published = [one for one in place.made.published if one[0] < end]
    assert [row["offset"] for row in place.rows("messages")] == [one[0] for one in published]
    assert [row["offset"] for row in place.rows("numbers")] == [one[0] for one in published if one[2].startswith("t/")]
    assert [row["offset"] for row in place.rows("docs")] == [one[0] for one in published if one[2].startswith("d/")]


REFUSED = [
    ('"t/+"', '"t/0"', "the table numbers in .* was built with filter 't/+', the settings say 't/0'"),
    ('["", "which"]', '["which"]', "the table numbers in .* was built with levels"),
    ("a int", "a string", "the table docs in .* was built with schema"),
    ("b  string", "c int", "the table docs in .* was built with schema"),
    ('"json"\nschema = "a int, b  string"', '"number"', "the table docs in .* was built with format 'json'"),
]


@pytest.mark.parametrize(("before", "after", "said"), REFUSED)
def test_changed_settings_of_a_typed_table_are_refused(place: Place, before: str, after: str, said: str) -> None:
    settings = (NUMBERS + DOCUMENTS).replace(before, after)
    assert settings != NUMBERS + DOCUMENTS
    place.config.write_text(f'[pipeline]\nlake = "{place.lake}"\n{settings}')
    with pytest.raises(LakeError) as caught:
        load_unchecked(place.config).pipeline.check_tables()
    _check_sentence(str(caught.value), said)


def test_a_run_with_changed_settings_ends_before_spark_starts(place: Place) -> None:
    before, after, said = REFUSED[0]
    code, printed = place.run((NUMBERS + DOCUMENTS).replace(before, after), *ONLY)
    assert code == 2
    _check_sentence(printed.splitlines()[-1], "ember: " + said)


def _check_sentence(sentence: str, said: str) -> None:
    assert re.match(said.replace("+", r"\+"), sentence), sentence
    name = "numbers" if "numbers" in said else "docs"
    assert sentence.endswith(f"or `ember pipeline run --rebuild {name}` builds it again from the log")


def test_the_server_runs_though_a_typed_table_has_changed(place: Place) -> None:
    place.config.write_text(NUMBERS.replace("t/+", "t/0"))
    arguments = ["--port", "0", "--data", str(place.directory / "other"), "--lake", str(place.lake)]
    process = subprocess.Popen(
        [sys.executable, "-m", "embermq", "up", *arguments, "--config", str(place.config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "ready\n":
                break
        process.terminate()
        assert process.wait(180) == 0
    finally:
        process.kill()
        process.communicate()
    assert "pipeline: not running: the table numbers in " in lines[-2] and "was built with filter" in lines[-2]


@pytest.mark.long
def test_a_changed_table_is_built_again_on_request(place: Place) -> None:
    # White space in a schema and skipped levels at the end change nothing: `docs` is continued.
    settings = NUMBERS.replace("t/+", "t/0").replace('"which"', '"kind", ""') + DOCUMENTS.replace("b  s", "b s")
    before = place.progress()["jobs"]["docs"]["offset"]
    code, printed = place.run(settings, "--rebuild", "numbers", "--only", "numbers", "--only", "docs")
    assert code == 0, printed
    wanted = [one[0] for one in place.made.published if one[2] == "t/0"]
    assert [(row["offset"], row["kind"]) for row in place.rows("numbers")] == [(offset, "0") for offset in wanted]
    assert place.rows("numbers_rejects") == []
    jobs = place.progress()["jobs"]
    assert jobs["docs"]["records"] == jobs["docs"]["offset"] - before > 0
    assert not (place.lake / "_embermq" / "removed").exists()
