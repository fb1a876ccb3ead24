"""What commands print: hostile text, sizes, times, tables, JSON and CSV."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embermq.commands.output import (
    Column,
    Format,
    Size,
    chosen_format,
    counted,
    duration_text,
    json_line,
    print_rows,
    print_table,
    printable,
    shortened,
    size_text,
    table_line,
    width_of,
)
from embermq.errors import ConfigError
from support.ember_command import DataPlace, ember

HOSTILE = {
    "clears the screen": "a\x1b[2J\x1b[H",
    "one byte escape of C1": "a\x9b2J",
    "sets the title": "a\x1b]0;title\x07",
    "bell, backspace, carriage return": "a\x07\x08\r",
    "right-to-left override": "a\u202egnp.exe",
    "isolates": "a\u2066b\u2069",
    "left-to-right mark": "a\u200e",
    "zero width": "a\u200b",
    "line separator": "a\u2028b",
    "tag characters": "a\U000e0041",
}
HOSTILE_TEXTS = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


@HOSTILE_TEXTS
def test_nothing_hostile_is_printed(text: str) -> None:
    for shown in (printable(text), json_line({"topic": text, text: 1})):
        assert shown.isprintable()
    assert json.loads(json_line({"topic": text})) == {"topic": text}


@given(st.text())
def test_json_is_printable_and_says_the_same(text: str) -> None:
    assert json_line(text).isprintable() and json.loads(json_line(text)) == text
    assert printable(text).isprintable()


def test_a_half_of_a_surrogate_pair_is_printed_as_an_escape() -> None:
    assert printable("a\udc80") == "a\\udc80"
    assert json_line("a\udc80") == '"a\\udc80"'


# U+0080 to U+009F are refused in topic names, as control characters.
@pytest.mark.parametrize("text", [text for text in HOSTILE.values() if "\x9b" not in text])
def test_no_command_prints_a_hostile_topic_or_payload(place: DataPlace, text: str, tmp_path: Path) -> None:
    place.set(text, text.encode())
    shown = [
        place.retained("ls"),
        place.retained("ls", "--json"),
        place.retained("get", text),
        place.retained("get", text, "--json"),
        place.retained("export", "-"),
        place.retained("get", f"{text}/absent"),
        place.retained("ls", f"{text}/absent"),
        place.retained("ls", f"{text}#"),
        place.retained("clear", "#", "--dry-run"),
        ember("log", "cat", "--data", place.data),
        ember("log", "cat", "--json", "--data", place.data),
        ember("log", "cat", "--filter", f"{text}#", "--data", place.data),
        ember("store", "stat", "--data", place.data),
        ember("retained", text),
        ember("retained", "ls", f"--{text}"),
    ]
    for done in shown:
        for line in (done.text + done.errors).split("\n"):
            assert line.isprintable()
    assert place.topics() == {text: text}


@HOSTILE_TEXTS
@pytest.mark.parametrize("format", Format)
def test_no_row_of_a_query_is_hostile_to_a_terminal(
    format: Format, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_rows(["topic", text], [[text, text.encode()], [[text], {text: text}]], format)
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == (3 if format is Format.JSON else 4) and all(line.isprintable() for line in lines)


def test_csv_in_a_file_has_the_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    instant = datetime(2026, 1, 31, 14, 3, tzinfo=UTC)
    print_rows(["a", "b", "c", "d"], [["x\x1b,y", None, True, instant]], Format.CSV)
    assert capsys.readouterr().out == 'a,b,c,d\n"x\x1b,y",,true,2026-01-31T14:03:00.000000Z\n'


def test_json_rows_name_what_is_base64(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["payload", "x"], [[b"text", 1.5], [b"\xff", float("nan")]], Format.JSON)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"payload": "text", "x": 1.5}
    assert second == {"payload_base64": "/w==", "x": None}


def test_a_table_aligns_numbers_right_and_texts_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["topic", "messages", "size"], [["a/b", 7, Size(2048)], ["größe/日本", 1200, Size(5)]], ["2", 1207, ""])
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC       MESSAGES     SIZE",
        "a/b                7  2.0 KiB",
        "größe/日本      1200      5 B",
        "2               1207",
    ]


def test_a_table_fits_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(["topic", "n"], [["x" * 100, 1], ["y", 2]])
    lines = capsys.readouterr().out.splitlines()
    assert [len(line) for line in lines] == [40, 40, 40]
    assert lines[1] == f"{'x' * 36}…  1"


def test_widths_count_cells() -> None:
    assert [width_of(text) for text in ("abc", "日本", "e\u0301")] == [3, 4, 1]
    assert shortened("日本語", 5) == "日本…" and shortened("日本語", 4) == "日…" and shortened("abc", 3) == "abc"
    assert table_line([Column("a", 4), Column("b", 3, right=True)], ["日", "1"]) == "日      1"


def test_sizes_durations_and_counts() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 1536, 1 << 20, 10 << 30, 1 << 60)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "1.0 MiB",
        "10.0 GiB",
        "1024.0 PiB",
    ]
    assert size_text((1 << 20) - 1) == "1.0 MiB"
    assert [duration_text(s) for s in (0.4, 59, 247, 10_800, 1_054_800)] == ["0s", "59s", "4m 7s", "3h 0m", "12d 5h"]
    assert (counted(1, "message"), counted(0, "message")) == ("1 message", "0 messages")


def test_one_format_is_chosen() -> None:
    assert [chosen_format(*flags) for flags in ((False, False), (True, False), (False, True))] == list(Format)
    with pytest.raises(ConfigError, match="--json and --csv: expected one of them"):
        chosen_format(True, True)
