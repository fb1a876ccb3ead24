"""docs/retained.md: its examples are run, and print what the page says."""

import os
import re
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.ember_command import ember, server

PAGE = Path(__file__).parent.parent.parent / "docs" / "retained.md"
THEN = "2026-11-15T14:03:00+01:00"
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
_INSTANT = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_VARIABLE = re.compile(r'"process": \d+|process \d+|"log_bytes": \d+')


def examples(block: str) -> list[tuple[str, str]]:
    """Each command of a block with what it prints."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines(keepends=True):
        if line.startswith("$ "):
            found.append((line[2:].strip(), ""))
        else:
            found[-1] = found[-1][0], found[-1][1] + line
    return found


def plain(text: str) -> str:
    """Without what is different each time."""
    return _VARIABLE.sub("?", _INSTANT.sub("?", text))


def test_the_examples_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 5
    then = ""
    commands = 0
    with server(Path("ember-data")):
        for block in BLOCKS:
            for command, expected in examples(block):
                arguments = shlex.split(command.replace(THEN, then))
                assert arguments[0] == "ember"
                done = ember(*arguments[1:])
                assert plain(done.text + done.errors) == plain(expected), command
                assert done.code == (1 if "nothing is retained" in expected else 0)
                commands += 1
            then = then or _now()
    assert commands >= 15
    assert sorted(os.listdir(tmp_path)) == ["backup.jsonl", "ember-data"]


def _now() -> str:
    before = time.time_ns() // 1000
    while time.time_ns() // 1000 == before:
        pass
    return datetime.now(UTC).isoformat(timespec="microseconds")
