"""`make check`: which tests a changed file asks for, and what the tests say at their head."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from embermq.compiled import form

ROOT = Path(__file__).parent.parent
CHECK: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "check"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/embermq/broker/routes.py", "tests/broker"),
        ("src/embermq/broker/history/sender.py", "tests/broker/history"),
        ("src/embermq/commands/text/log_lines.py", "tests/commands/text"),
        ("src/embermq/reloading.py", "tests/test_reloading.py"),
        ("src/embermq/named_thread.py", "tests/test_named_thread.py"),
        ("src/embermq/no_such_module.py", None),
        ("tests/test_cli.py", "tests/test_cli.py"),
        ("tests/support/wire.py", None),
        ("docs/limits.md", "tests/test_docs.py"),
        ("README.md", "tests/test_docs.py"),
        ("Makefile", None),
    ],
)
def test_a_changed_file_asks_for_the_tests_of_its_package(path: str, expected: str | None) -> None:
    assert CHECK["tests_of"](Path(path)) == expected
    assert expected is None or (ROOT / expected).exists()


def test_no_test_is_chosen_twice() -> None:
    paths = [Path("src/embermq/store/errors.py"), Path("src/embermq/store/log/blocks.py"), Path("tests/test_cli.py")]
    assert CHECK["chosen"](paths) == [*sorted([*CHECK["ALWAYS"], "tests/store", "tests/test_cli.py"])]


def test_the_tests_say_which_form_runs() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "tests/test_named_thread.py",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    first = done.stdout.splitlines()[0]
    assert first.startswith("embermq: ") and form() in first
