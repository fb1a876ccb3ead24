"""`ember store`: what is kept, and the state rebuilt from the log."""

import json
import os
import shutil
from pathlib import Path

import pytest

from embermq.protocol.packets import Publish
from embermq.store.engines.opening import JournalSettings, rebuild
from embermq.store.log.writer import Log
from embermq.store.rows import RETAIN_FLAG, Group, Kind
from support.ember_command import ember, sentence, server, wire
from support.log_samples import flipped
from support.trimmed_log import everything, fill_trimmed, first_offset


def fill(data: Path) -> None:
    with server(data) as broker, wire(broker, "away", clean=False) as client:
        client.subscribe(("queue", 1))
        for number in range(50):
            client.publish(f"a/{number % 20}", b"%d" % number, qos=1, retain=True)
        client.publish("a/3", b"", qos=1, retain=True)


def facts(data: Path) -> dict[str, object]:
    done = ember("store", "stat", "--json", "--data", data)
    assert done.code == 0, done
    found = json.loads(done.text)
    assert isinstance(found, dict)
    return found


def test_the_same_is_said_of_a_running_and_of_a_stopped_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    stopped = facts(data)
    assert stopped["process"] is None
    with server(data):
        running = facts(data)
    assert running["process"] == os.getpid()
    for found in (stopped, running):
        assert found["retained"] == {"count": 19, "bytes": sum(len(f"a/{n % 20}{n}") for n in range(30, 50) if n != 43)}
        assert (found["sessions"], found["state"], found["first_offset"]) == (1, "ok", 1)
        assert found["log_begins"] is not None and found["log_segments"] == 1
    text = ember("store", "stat", "--data", data).text
    assert "retained      19 messages" in text and "server        stopped" in text


def test_a_state_that_is_lost_is_made_anew(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    before = ember("retained", "export", "-", "--data", data).printed
    shutil.rmtree(data / "state")
    (data / "state").mkdir()
    (data / "state" / "CURRENT").write_text("nonsense")
    assert "`ember store rebuild`" in sentence(ember("retained", "ls", "--data", data))
    done = ember("store", "rebuild", "--data", data)
    assert done.code == 0 and done.text.startswith(f"rebuilt {data}/state from the log, up to offset ")
    assert ember("retained", "export", "-", "--data", data).printed == before
    assert facts(data)["sessions"] == 1
    assert sorted(path.name for path in data.iterdir()) == ["LOCK", "log", "state"]


def test_a_running_server_keeps_its_state(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with server(data):
        assert sentence(ember("store", "rebuild", "--data", data)).endswith(": stop it first")
        assert ember("retained", "set", "a", "1", "--data", data).code == 0


def test_a_log_that_is_damaged_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    segment = next((data / "log").glob("*.log"))
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 3] ^= 1
    segment.write_bytes(damaged)
    before = sorted((path.name, path.stat().st_size) for path in (data / "state").glob("*.sst"))
    done = ember("store", "rebuild", "--data", data)
    assert done.code == 1 and str(segment) in done.errors
    assert sorted((path.name, path.stat().st_size) for path in (data / "state").glob("*.sst")) == before != []


def test_a_rebuild_that_is_broken_off_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    before = facts(data)

    def break_off(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild(data, JournalSettings(), break_off)
    assert sorted(path.name for path in data.iterdir()) == ["LOCK", "log", "state"]
    assert facts(data) == before


def trimmed(data: Path) -> None:
    """A log whose first segment is gone: of what was retained in it, the state has the only copy."""
    with server(data):
        assert ember("retained", "set", "old", "only in the state", "--data", data).code == 0
    log = Log(data / "log", segment_bytes=1, segment_age_s=3600, sync=True)
    group = Group(log.next_offset)
    message = Publish("new", b"in the log", 1, True)
    now_us = log.last_timestamp_us + 1
    group.append(now_us, Kind.PUBLISH, 1 | RETAIN_FLAG, message.topic_name.encode(), message.payload, b"c")
    log.append(group, now_us)
    assert ember("retained", "ls", "--data", data).code == 2  # the log is in use
    log.close()
    assert len(ember("retained", "ls", "--json", "--data", data).lines) == 2
    log = Log(data / "log", segment_bytes=1, segment_age_s=3600, sync=True)
    assert log.trim(log.next_offset - 1)
    log.close()


@pytest.mark.parametrize("agreed", [True, False])
def test_what_only_the_state_has_is_not_thrown_away_unasked(agreed: bool, tmp_path: Path) -> None:
    data = tmp_path / "data"
    trimmed(data)
    declined = ember("store", "rebuild", "--data", data, stdin=b"n\n")
    assert declined.code == 1 and "is only in the state" in declined.errors
    assert len(ember("retained", "ls", "--json", "--data", data).lines) == 2
    done = ember("store", "rebuild", "--data", data, *(("--yes",) if not agreed else ()), stdin=b"y\n")
    assert done.code == 0
    assert ember("retained", "get", "new", "--data", data).text == "in the log\n"
    assert ember("retained", "get", "old", "--data", data).code == 1
    # What was before the log's beginning is not known, which is not the same as empty.
    assert "the history is kept from" in sentence(ember("retained", "ls", "--as-of", "1h", "--data", data))


def test_a_rebuild_from_a_trimmed_log_gives_the_same_state(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)
    before = everything(data)
    done = ember("store", "rebuild", "--data", data)
    assert done.code == 0, done  # and it has asked nothing
    assert everything(data) == before
    # A server whose state is lost makes it by itself.
    shutil.rmtree(data / "state")
    assert everything(data) == before


def test_a_rebuild_without_its_checkpoint_asks_and_a_server_refuses(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)
    for path in (data / "log").glob("*.ckpt"):
        path.write_bytes(flipped(path.read_bytes(), path.stat().st_size // 2))
    verified = ember("log", "verify", "--data", data)
    assert verified.code == 1 and ".ckpt, position 32: " in verified.text
    before = everything(data)
    declined = ember("store", "rebuild", "--data", data, stdin=b"n\n")
    assert declined.code == 1 and "without an undamaged checkpoint" in declined.errors
    assert everything(data) == before
    shutil.rmtree(data / "state")
    refused = sentence(ember("retained", "ls", "--data", data))
    assert refused.startswith(f"the state lacks offsets 1 to {first_offset(data) - 1}, which the log")
    assert ember("store", "rebuild", "--yes", "--data", data).code == 0


def test_one_damaged_checkpoint_costs_no_more_than_some_history(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)
    oldest, *others = sorted((data / "log").glob("*.ckpt"))
    assert others
    before = everything(data, instants=1)
    oldest.write_bytes(flipped(oldest.read_bytes(), 100))
    assert ember("store", "rebuild", "--data", data).code == 0
    assert everything(data, instants=1) == before


def test_stat_of_a_log_names_its_checkpoints(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)
    shown = [json.loads(line) for line in ember("log", "stat", "--json", "--data", data).lines]
    found = [facts["checkpoint_of"] for facts in shown if "checkpoint_of" in facts]
    assert found[0] == first_offset(data) == shown[0]["first_offset"]
    assert f"the checkpoint of offset {found[0]}" in ember("log", "stat", "--data", data).text
    assert ember("log", "verify", "--data", data).code == 0
