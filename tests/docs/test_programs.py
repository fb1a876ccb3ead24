"""The code of docs/how-to/programs.md is run as it is there, in each of its languages."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright._impl._driver import compute_driver_executable

from embermq import Broker
from embermq.access.tokens import write_token
from embermq.http.client import HttpClient
from embermq.http.options import HttpOptions
from support.ember_command import wire

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "programs.md"
BLOCK = re.compile(r"^## (.*?)$|^```(\w*)\n(.*?)^```$", re.M | re.S)
ADDRESS = "127.0.0.1:8080"
NODE = str(compute_driver_executable()[0])
RUNS = {
    "sh": ("bash", "-euo", "pipefail", "-c"),
    "python": (sys.executable, "-uc"),
    "js": (NODE, "--input-type=module", "--eval"),
}


class Served(NamedTuple):
    broker: Broker
    token: str
    data: Path


ENDLESS = "Follow messages, and go on where the program was"
TIMEOUT_S = 60


def blocks(language: str) -> list[tuple[str, str]]:
    """The heading of each block of a language, and its text."""
    found: list[tuple[str, str]] = []
    heading = ""
    for title, kind, text in BLOCK.findall(PAGE.read_text()):
        heading = title or heading
        if kind == language:
            found.append((heading, text))
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("programs")
    token = write_token(directory / "tokens", "my-program", "operator")
    with Broker.in_thread(data=directory / "data", http=HttpOptions(port=0, token_file=directory / "tokens")) as broker:
        yield Served(broker, token, directory / "data")


def started(served: Served, language: str, texts: list[str], directory: Path) -> subprocess.Popen[str]:
    program = "\n".join(texts).replace(ADDRESS, f"127.0.0.1:{served.broker.http_port}")
    return subprocess.Popen(
        [*RUNS[language], program],
        cwd=directory,
        env=os.environ | {"TOKEN": served.token},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("language", RUNS)
def test_each_task_can_be_done(served: Served, language: str, tmp_path: Path) -> None:
    with wire(served.broker, "writer") as device:
        for number in range(3):
            device.publish(f"plant/old/{number}", b"old", qos=1, retain=True)
    described = {"topic": "plant/7/described", "payload": "x", "properties": {"content_type": "text/plain"}}
    with HttpClient(served.data / "control.sock") as http:
        http.post("/api/v1/retained/set", {"messages": [described]})
    tasks = [text for heading, text in blocks(language) if heading != ENDLESS]
    program = started(served, language, tasks, tmp_path)
    said, _ = program.communicate(timeout=TIMEOUT_S)
    assert program.returncode == 0, said
    with HttpClient(served.data / "control.sock") as http:
        imported = http.get("/api/v1/retained/message?topic=plant/7/described")
    assert imported["properties"] == {"content_type": "text/plain"}
    assert imported["client_id"] == ("$operator" if language == "sh" else "$operator/my-program")
    assert len(tasks) == len({heading for heading, _ in blocks(language)}) - 1


def test_every_task_is_shown_in_every_language() -> None:
    headings = {language: [heading for heading, _ in blocks(language)] for language in RUNS}
    assert headings["sh"] == headings["python"] == headings["js"]
    assert ENDLESS in headings["sh"] and len(headings["sh"]) >= 12


@pytest.mark.parametrize("language", RUNS)
def test_a_program_that_follows_gets_what_was_and_what_comes(served: Served, language: str, tmp_path: Path) -> None:
    with wire(served.broker, "follower") as device:
        device.publish("plant/7/followed", b"before", qos=1)
        texts = [text for heading, text in blocks(language) if heading in ("Before", ENDLESS)]
        program = started(served, language, texts, tmp_path)
        try:
            assert program.stdout is not None
            for expected in ("before", "after"):
                lines = iter(program.stdout.readline, "")
                assert any("plant/7/followed" in line and expected in line for line in lines)
                device.publish("plant/7/followed", b"after", qos=1)
        finally:
            program.kill()
            program.wait()
