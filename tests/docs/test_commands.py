"""Every command of the README and the tutorials is run, in order, and prints what the page shows."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from embermq.extras import EXTRA_OF
from support.ports import free_port

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
BIN = Path(sys.executable).parent
TIMEOUT_S = 60

WITHOUT_EXTRAS = """
import os, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["MISSING"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

sys.meta_path.insert(0, Missing())
"""
"""Hides the packages of extras that the page has not installed yet; Python runs it at the start, by its name."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
PORTS = ("EMBERMQ_LISTENERS__PORT", "EMBERMQ_HTTP__PORT")


def commands(page: Path) -> list[tuple[str, str]]:
    """The commands of a page with the lines that they print, where it shows them."""
    found: list[tuple[str, str]] = []
    for language, text in BLOCK.findall(page.read_text()):
        if language != "console":
            assert language not in ("", "sh", "bash", "shell"), f"{page.name}: commands are in blocks of `console`"
            continue
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), ""))
            else:
                command, printed = found.pop()
                found.append((command, f"{printed}{line}\n"))
    return found


class Terminals:
    """The two terminals of a reader: one has the server, the other runs everything else."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: subprocess.Popen[str] | None = None
        clean = {name: value for name, value in os.environ.items() if not name.startswith("EMBERMQ_")}
        path = f"{BIN}{os.pathsep}{clean['PATH']}"
        # A port of this test in place of the usual one, for the server and for the commands that look for it.
        self._environment = clean | {"PATH": path, "HOME": str(directory)} | {PORTS[0]: str(free_port())}
        (directory / "start").mkdir()
        (directory / "start" / "sitecustomize.py").write_text(WITHOUT_EXTRAS)
        self._environment |= {"PYTHONPATH": str(directory / "start"), "MISSING": " ".join(EXTRA_OF)}

    def run(self, command: str, expected: str) -> None:
        words = shlex.split(command)
        if words[:2] == ["pip", "install"]:
            self._check_requirement(words[2])
        elif words[:2] == ["ember", "serve"]:
            self._serve(words)
        elif words[0] == "export":
            name = words[1].partition("=")[0]
            self._environment[name] = self._bash(f'{command}; printf %s "${name}"')
        else:
            printed = self._bash(command)
            assert not expected or lines_of(printed) == lines_of(expected), command

    def _bash(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def _check_requirement(self, requirement: str) -> None:
        """The package is installed here already; the packages of its extras are seen from now on."""
        name, _, extras = requirement.rstrip("]").partition("[")
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert name == project["name"]
        for extra in filter(None, extras.split(",")):
            needed = {re.split(r"[<>=\[]", each)[0] for each in project["optional-dependencies"][extra]}
            found = {"delta" if each == "delta-spark" else each for each in needed}
            still = [each for each in self._environment["MISSING"].split() if each not in found]
            self._environment["MISSING"] = " ".join(still)

    def _serve(self, words: list[str]) -> None:
        if self._server is not None:  # it was killed by a command of the page
            assert self._server.wait(TIMEOUT_S) == -signal.SIGKILL
            self._end()
        if "--config" in words:
            self._environment[PORTS[1]] = str(free_port())
        self._server = subprocess.Popen(
            words,
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._server.stdout is not None
        assert "ready\n" in iter(self._server.stdout.readline, "")

    def _end(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None

    def close(self) -> None:
        self._end()


def lines_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    made = Terminals(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_do_what_it_says(page: Path, terminals: Terminals) -> None:
    assert len(commands(page)) >= 3
    for command, expected in commands(page):
        terminals.run(command, expected)


def test_the_readme_is_short() -> None:
    """Without commands and addresses: what somebody reads."""
    text = re.sub(r"\]\([^)]*\)", "]", BLOCK.sub("", (ROOT / "README.md").read_text()))
    assert len(re.findall(r"[\w'-]+", text)) <= 350


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "tutorials" / "ten-minutes" / "index.html").exists()
    api = (tmp_path / "api" / "index.html").read_text()
    assert "embermq.embed.Broker.in_thread" in api and "embermq.testing.broker.TestedBroker.wait_for" in api
