"""`ember log ls`, `verify` and `restore` with an archive."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from embermq import Broker
from embermq.archive.archive import open_archive
from embermq.config import load
from embermq.embed import BrokerThread
from support.archives import engine_with, publish, publish_slowly, wait_until
from support.ember_command import Done, ember, sentence
from support.trimmed_log import SETTINGS, STEP_US, first_offset


def archived(tmp_path: Path, rounds: int = 40) -> tuple[Path, Path]:
    """A stopped server's data directory and its archive."""
    data, place = tmp_path / "data", tmp_path / "archive"
    engine = engine_with(data, str(place), SETTINGS)
    publish_slowly(engine, rounds, STEP_US)
    engine.store.close()
    return data, place


def test_ls_says_where_each_segment_is(tmp_path: Path) -> None:
    data, place = archived(tmp_path, 400)
    done = ember("log", "ls", "--archive", place, "--data", data)
    assert (done.code, done.errors) == (0, "")
    assert done.lines[0].startswith("FIRST OFFSET") and done.lines[0].endswith("ON")
    on = [line.rsplit("  ", 1)[-1].strip() for line in done.lines if line.strip()[:1].isdigit()]
    assert on.count("archive") > 3 and on.count("disk and archive") > 1
    rows = [json.loads(line) for line in ember("log", "ls", "--json", "--archive", place, "--data", data).lines]
    segments = [row for row in rows if "first_offset" in row]
    assert [row["first_offset"] for row in segments if row["in_archive"]] == [
        segment.first_offset for segment in open_archive(place).segments()
    ]
    assert sum(row["on_disk"] for row in segments) == len(list((data / "log").glob("*.log")))
    assert any(row["on_disk"] and row["in_archive"] for row in rows if "checkpoint_of" in row)


def test_ls_lists_an_archive_alone_and_a_disk_alone(tmp_path: Path) -> None:
    data, place = archived(tmp_path)
    alone = ember("log", "ls", "--json", "--archive", place)
    assert {json.loads(line)["on_disk"] for line in alone.lines} == {False}
    disk = ember("log", "ls", "--json", "--data", data)
    assert {json.loads(line)["in_archive"] for line in disk.lines} == {False}


def test_verify_checks_every_object(tmp_path: Path) -> None:
    _, place = archived(tmp_path)
    whole = ember("log", "verify", "--archive", place)
    assert (whole.code, whole.errors) == (0, "")
    assert whole.lines[-1].endswith("of the archive: undamaged")
    segment = open_archive(place).segments()[1]
    (place / f"{segment.name}.log").write_bytes(b"something else")
    damaged = ember("log", "verify", "--archive", place)
    assert damaged.code == 1
    assert f"damaged: {segment.name}.log of the archive {place} is damaged: it has 14 bytes" in damaged.text
    assert damaged.lines[-1].endswith("of the archive: 1 damaged")


def test_a_lost_machine_is_restored_and_says_what_is_lost(tmp_path: Path) -> None:
    data, place = archived(tmp_path)
    before = ember("retained", "ls", "--json", "--data", data).text
    end = open_archive(place).bounds()[1]
    shutil.rmtree(data)
    done = ember("log", "restore", "--from", place, "--data", data)
    assert (done.code, done.errors) == (0, "")
    assert done.lines[0].startswith("restored offsets 141 to 160 (1 segment, ") and end == 161
    assert done.lines[1].startswith(f"the first lost offset is {end}: what was recorded after 1970-")
    assert done.lines[2] == "the log goes on at offset 2000000000, as generation 2"
    assert ember("retained", "ls", "--json", "--data", data).text == before
    listed = ember("log", "ls", "--archive", place, "--data", data)
    assert "the checkpoint of offset 2000000000" in listed.text
    verified = ember("log", "verify", "--data", data)
    assert (verified.code, verified.lines[-1].endswith("undamaged")) == (0, True)
    tail = ember("log", "tail", "-n", "3", "--json", "--data", data)
    assert [json.loads(line)["offset"] for line in tail.lines] == [end - 3, end - 2, end - 1]


def test_what_cannot_be_restored_is_one_sentence(tmp_path: Path) -> None:
    data, place = archived(tmp_path)
    again = ember("log", "restore", "--from", place, "--data", data)
    assert "has a log: restore into a directory without one" in sentence(again)
    none = ember("log", "restore", "--from", tmp_path / "none", "--data", tmp_path / "new")
    assert "is not an archive" in sentence(none)
    assert "is not the address of an archive" in sentence(ember("log", "ls", "--archive", "ftp://x"))


def test_a_server_does_not_begin_a_new_log_where_one_can_be_restored(tmp_path: Path) -> None:
    _, place = archived(tmp_path)
    new = tmp_path / "new"
    said = sentence(ember("serve", "--port", "0", "--data", new, environment={"EMBERMQ_STORE__ARCHIVE": str(place)}))
    assert f"{new} has no log, and the archive {place} has one up to offset 160" in said
    assert f"`ember log restore --from {place} --data {new}`" in said


@pytest.mark.parametrize("is_running", [False, True], ids=["stopped", "running"])
def test_as_of_reaches_an_instant_that_only_the_archive_has(is_running: bool, tmp_path: Path) -> None:
    data, place = tmp_path / "data", tmp_path / "archive"
    engine = engine_with(data, str(place), SETTINGS)
    truth: dict[int, int] = {}
    for number in range(300):
        publish(engine, 1, STEP_US, payload=b"%d" % number)
        truth[engine.now_us] = number
        if number % 20 == 0:
            wait_until(lambda: engine.store.counts()["archive/pending-bytes"] == 0)
    engine.store.close()
    instant_us = 1_000_000 + 31 * STEP_US
    assert first_offset(data) > 4 * 100
    environment = {"EMBERMQ_STORE__ARCHIVE": str(place)}
    shown = (instant_us + 5) / 1_000_000

    def ask(*arguments: str) -> Done:
        return ember("retained", *arguments, "--as-of", f"{shown}", "--data", data, environment=environment)

    with ExitStack() as stack:
        if is_running:
            store = {"directory": data, "archive": str(place)}
            broker = Broker.from_settings(load(None, {"listeners": {"port": 0}, "store": store}))
            stack.enter_context(BrokerThread(broker))
        listed = [json.loads(line) for line in ask("ls", "--json").lines]
        assert [row["topic"] for row in listed] == [f"much/{number}" for number in range(4)]
        assert [row["payload"].partition("\0")[0] for row in listed] == [str(truth[instant_us])] * 4
        assert ask("get", "much/2").text.startswith(f"{truth[instant_us]}\\x00")
        before = ember("retained", "ls", "--as-of", f"{shown}", "--data", data)
        if not is_running:
            assert "the history is kept from" in sentence(before)
    wait_until(lambda: not list((data / "archive-cache").glob("as-of-*")))
