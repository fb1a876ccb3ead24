"""The report: what it finds, and a page that needs nothing else."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

from embermq.history.source import LogEnd
from embermq.lake.duck import open_tables
from embermq.lake.lake import Lake
from embermq.lake.progress import JobProgress, write_progress
from embermq.lake.report import report_html
from embermq.lake.report_data import read_report_data
from support.local_lake import CLIENTS, REJECTS, instant, local_lake, write
from support.recorded import START_US, Recorder

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND_US = 1_000_000


class Tags(HTMLParser):
    """Fails on tags that do not fit together."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: object) -> None:
        """Such a tag is closed by itself."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def busy_lake(made: Recorder, directory: Path) -> Lake:
    """One topic every second, one every minute, one that stopped, below two prefixes."""
    for second in range(3600):
        made.publish("plant/a/fast", b"x" * (1 + second % 100), step_us=SECOND_US)
        if second % 60 == 0:
            made.publish("plant/a/slow", b"", retain=True, step_us=0)
        if second < 600 and second % 10 == 0:
            made.publish("office/<door>", b"1", retain=True, step_us=0)
    made.flush()
    lake = local_lake(directory, made)
    events = [("connected", "a", None), ("disconnected", "a", "keep alive timeout"), ("disconnected", "b", "")]
    write(lake, "clients", CLIENTS, [(instant(START_US + SECOND_US), *event) for event in events])
    write(lake, "numbers_rejects", REJECTS, [(1, "value", "not a number"), (2, "value", "not a number")])
    write_progress(lake, [JobProgress("messages", offset=7, lag=1234)], LogEnd(9, 5), "running")
    return lake


def test_the_queries_find_what_happened(recorder: Callable[..., Recorder], tmp_path: Path) -> None:
    lake = busy_lake(recorder(), tmp_path / "lake")
    with open_tables(lake) as tables:
        data = read_report_data(tables)
    assert (data.messages, data.topics, data.retained, data.clients) == (3720, 3, 1, 2)
    interval_s = (data.rate[1].at - data.rate[0].at).total_seconds()
    assert round(sum(point.value for point in data.rate) * interval_s) == 3720
    groups = [(group.name, group.messages, group.topics) for group in data.groups]
    assert groups == [
        ("plant", 3660, 2),
        ("office", 60, 1),
    ]
    # The slow topic is silent for up to a minute, as always; the one that stopped is silent for far longer than ever.
    (silent,) = data.silent
    assert (silent.topic, silent.interval_s, silent.longest_s) == ("office/<door>", 10.0, 10.0)
    assert silent.silence_s == 3599 - 590
    assert data.retained_over_time[-1].value == 1
    assert data.connects[0].value == 1
    assert data.drops == [("keep alive timeout", 1), ("no reason recorded", 1)]
    assert data.rejects == [("numbers.value: not a number", 2)]
    assert dict(data.sizes)["no payload"] == 60 and sum(dict(data.sizes).values()) == 3720
    assert data.lags == ["messages: 1,234 records"]


def test_the_page_is_one_file_with_one_axis_and_escaped_names(
    recorder: Callable[..., Recorder], tmp_path: Path
) -> None:
    page = report_html(busy_lake(recorder(), tmp_path / "lake"), NOW)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert "<script" not in page and "http" not in page and "url(" not in page and "nan" not in page.lower()
    assert "office/&lt;door&gt;" in page and 'name="viewport"' in page
    axes = re.findall(r'<div class="times">(.*?)</div>', page, re.DOTALL)
    assert len(axes) >= 3 and len(set(axes)) == 1 and "14 Nov 2023" in axes[0]
    for title in (
        "Message rate",
        "Topics by prefix",
        "Silent topics",
        "Payload sizes",
        "Rejected payloads",
        "Gaps",
        "Lag",
    ):
        assert f"<h2>{title}</h2>" in page


def test_an_empty_lake_has_a_report_too(recorder: Callable[..., Recorder], tmp_path: Path) -> None:
    assert "no data" in report_html(local_lake(tmp_path / "lake", recorder()), NOW)
    lake = Lake(tmp_path / "other")
    lake.open()
    assert "no data" in report_html(lake, NOW)
