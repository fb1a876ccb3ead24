"""The examples do what they say, and end by themselves."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.clauses import v5, v311

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

AS_WRITTEN = {
    0: ["-", "-", "-", "-"],
    1: ["house/garage='temp'", "-", "-", "-"],
    3: ["house/garage='on'", "-", "-", "-"],
    5: ["-", "kept house/garage='on'", "-", "-"],
    6: ["house/garage='off'", "house/garage='off'", "-", "-"],
    8: ["-", "-", "kept house/garage='on'", "-"],
    9: ["house/garage=''", "house/garage=''", "house/garage='', house/room=''", "-"],
    10: ["-", "-", "-", "kept house/garage='on'"],
}
ALL_RETAINED = AS_WRITTEN | {
    8: ["-", "-", "kept house/garage='off', kept house/room='off'", "-"],
    10: ["-", "-", "-", "-"],
}


CHOSEN = {
    0: ["-", "-", "-", "-"],
    1: ["kept house/garage='on'", "-", "-", "-"],
    2: ["-", "-", "-", "-"],
    3: ["-", "-", "kept house/garage='on'", "-"],
    4: ["-", "-", "-", "-"],
    5: ["-", "-", "kept house/garage='on'", "-"],
    6: ["house/garage='off'", "house/garage='off'", "house/garage='off'", "-"],
    8: ["-", "-", "-", "kept house/garage='on'"],
    9: ["kept house/garage=''", "house/garage=''", "house/garage=''", "house/garage=''"],
    10: ["-", "-", "-", "-"],
}


def timelines(*arguments: str) -> list[dict[int, list[str]]]:
    """What the example printed: for each of its timelines, by time, what the four subscribers received."""
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "retain_timeline.py", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    tables = []
    for part in ran.stdout.strip().split("\n\n"):
        steps = re.findall(r"^ +(\d+)  \S.*\n((?: +S\d: .*\n?){4})", part, re.MULTILINE)
        tables.append({int(time): re.findall(r"S\d: (.*)", lines) for time, lines in steps})
    return tables


@v311("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-8", "MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-12")
def test_the_timeline_prints_what_each_subscriber_received() -> None:
    assert timelines() == [AS_WRITTEN, ALL_RETAINED]


@v5(*(f"MQTT-3.3.1-{number}" for number in range(5, 14)))
def test_the_timeline_with_mqtt_5_adds_the_choices_of_a_subscriber() -> None:
    assert timelines("--v5") == [AS_WRITTEN, ALL_RETAINED, CHOSEN]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_every_example_says_what_it_shows(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith('"""')
