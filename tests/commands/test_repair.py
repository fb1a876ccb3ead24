"""`ember store repair`: a damaged directory starts again, with all that is known, and nothing of it is deleted."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from embermq.protocol.packets import Publish, SubscriptionRequest
from embermq.store.engines.opening import JournalSettings
from embermq.store.engines.repair import repair
from embermq.store.log.errors import LogTrimmed
from embermq.store.log.identity import lost_ranges
from embermq.store.log.reader import LogReader
from embermq.store.records import Disconnected, Subscribed
from support.ember_command import ember, sentence, server
from support.log_samples import block_positions, flipped, segment_files
from support.store_calls import open_session, retained_scan
from support.trimmed_log import everything, fill_trimmed, open_journal

SETTINGS = JournalSettings(durability="os", segment_bytes=2048)
MESSAGES = 60


def fill(data: Path) -> None:
    """Segments with a message in each block, all of them retained and owed to a session."""
    engine = open_journal(data, SETTINGS)
    store = engine.store
    engine.turn()
    session = open_session(store, "device", "user", 3_600)
    store.append(Subscribed("device", session.session_id, SubscriptionRequest("t/#", 1), True))
    assert session.queue is not None
    for number in range(MESSAGES):
        engine.turn()
        message = Publish(f"t/{number % 45}", b"message %d" % number, 1, True)
        offset = store.append_publish(message, "publisher")
        session.queue.push(message, offset, 1, False)
        engine.commit()
    store.append(Disconnected("device", session.session_id, "gone", 0))
    engine.commit()
    store.close()
    assert len(segment_files(data / "log")) > 4


def repaired(data: Path, *options: str) -> str:
    done = ember("store", "repair", "--data", data, *options)
    assert done.code == 0, done
    verified = ember("log", "verify", "--data", data)
    assert verified.code == 0, verified
    assert ember("store", "repair", "--data", data).text == f"nothing in {data} is damaged: nothing was changed\n"
    return done.text


def damage(data: Path, segment: int, block: int) -> tuple[Path, bytes]:
    """Flip a bit of a payload; the path and the bytes of the damaged segment."""
    path = segment_files(data / "log")[segment]
    _, end = list(block_positions(data / "log", segment))[block]
    path.write_bytes(flipped(path.read_bytes(), end - 10))
    return path, path.read_bytes()


def aside(data: Path) -> Path:
    (folder,) = (data / "set-aside").iterdir()
    return folder


def seen(data: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """What is retained, and what the session is owed and may be sent."""
    engine = open_journal(data, SETTINGS)
    now_us = engine.turn(60_000_000)
    kept = {one.topic_name: one.payload for one in retained_scan(engine.store, "#", "", 1_000)}
    (session,) = engine.store.sessions.load()
    assert session.queue is not None
    owed: list[bytes] = []
    while deliveries := session.queue.read(len(owed), 1_000):
        owed += [b"" if 0 < one.messages[0].expires_us <= now_us else one.messages[0].payload for one in deliveries]
    engine.store.close()
    return kept, owed


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("filled") / "data"
    fill(data)
    return data


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "data"))


ALL = [b"message %d" % number for number in range(MESSAGES)]


def test_a_bit_flipped_in_the_middle_costs_history_and_nothing_that_is_retained(data: Path) -> None:
    kept, owed = seen(data)
    assert owed == ALL
    path, bytes_before = damage(data, 2, 1)
    refused = ember("log", "verify", "--data", data)
    assert refused.code == 1 and str(path) in refused.text
    declined = ember("store", "repair", "--data", data, stdin=b"n\n")
    assert declined.code == 1 and "are damaged or missing. The log will begin at offset" in declined.errors
    assert not (data / "set-aside").exists()
    text = repaired(data, "--yes")
    assert "are lost; the state has applied them, so what is retained and owed is right." in text
    after, still_owed = seen(data)
    assert after == kept
    lost = [number for number, payload in enumerate(still_owed) if payload != ALL[number]]
    assert len(lost) == 1 and not still_owed[lost[0]]  # the one message of the damaged block
    assert (aside(data) / "log" / path.name).read_bytes() == bytes_before
    begins = LogReader(data / "log").bounds()[0]
    assert f"The log begins at offset {begins} now." in text
    with pytest.raises(LogTrimmed, match=f"offset 1 is no longer in the log, which now begins at offset {begins}"):
        next(LogReader(data / "log").runs(1))  # as every reader finds a gap: a lake, a bridge, a replay
    # What was good before the damage is read where it was set aside, and ends with the damage.
    read = ember("log", "cat", "--data", aside(data))
    assert read.code == 1 and str(aside(data) / "log" / path.name) in read.errors
    assert "message 0" in read.text and len(read.lines) > 3
    before = ("retained", "ls", "--as-of", "1970-01-01T00:00:01.010Z", "--data", data)
    assert "the history is kept from" in sentence(ember(*before))


def test_what_is_set_aside_is_for_its_owner_alone(data: Path) -> None:
    damage(data, 1, 0)
    (data / "log" / segment_files(data / "log")[0]).chmod(0o644)
    repaired(data, "--yes")
    for path in (data / "set-aside").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_missing_segment_in_the_middle_is_a_gap(data: Path) -> None:
    kept, _ = seen(data)
    files = segment_files(data / "log")
    files[2].unlink()
    text = repaired(data, "--yes")
    assert f"Offsets {int(files[2].stem)} to {int(files[3].stem) - 1} after 1970-" in text
    assert LogReader(data / "log").bounds()[0] == int(files[3].stem)
    after, owed = seen(data)
    assert after == kept
    assert [payload for payload in owed if payload] == [payload for payload in ALL if payload in owed]
    assert 0 < owed.count(b"") < MESSAGES // 2


def test_a_broken_index_is_made_again_and_nothing_is_lost(data: Path) -> None:
    before = seen(data)
    for segment in (1, -1):
        index = segment_files(data / "log", ".idx")[segment]
        index.write_bytes(flipped(index.read_bytes(), 60))
    segment_files(data / "log", ".idx")[2].unlink()
    text = repaired(data)
    assert text.count("it is not the index of its segment") == 3 and "lost" not in text
    assert seen(data) == before
    assert len(list((aside(data) / "log").iterdir())) == 2


@pytest.mark.parametrize("is_state_lost", [False, True])
def test_damaged_checkpoints_are_set_aside_and_another_one_is_written(is_state_lost: bool, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_trimmed(data)
    before = everything(data, instants=1)
    damaged = sorted((data / "log").glob("*.ckpt"))
    for path in damaged:
        path.write_bytes(flipped(path.read_bytes(), 100))
    if is_state_lost:
        shutil.rmtree(data / "state")
        declined = ember("store", "repair", "--data", data, stdin=b"n\n")
        assert declined.code == 1 and "and not since, is lost." in declined.errors
    repaired(data, *(("--yes",) if is_state_lost else ()))
    (checkpoint,) = (data / "log").glob("*.ckpt")
    assert checkpoint not in damaged and {path.name for path in (aside(data) / "log").iterdir()} == {
        path.name for path in damaged
    }
    if not is_state_lost:
        assert everything(data, instants=1) == before


@pytest.mark.parametrize("how", ["unreadable", "flipped", "headless"])
def test_a_broken_state_is_set_aside_and_made_from_the_log(how: str, data: Path) -> None:
    before = seen(data)
    table = next((data / "state").glob("*.sst"))
    if how == "unreadable":
        (data / "state" / "CURRENT").write_text("nonsense")
    elif how == "flipped":
        table.write_bytes(flipped(table.read_bytes(), 20))
    else:
        (data / "state" / "CURRENT").unlink()
    broken = table.read_bytes()
    assert "The state was made again from the log." in repaired(data)
    assert seen(data) == before
    assert (aside(data) / "state" / table.name).read_bytes() == broken


def test_a_broken_state_and_a_damaged_log_leave_what_is_good_of_the_log(data: Path) -> None:
    damage(data, 2, 1)
    (data / "state" / "CURRENT").write_text("nonsense")
    text = repaired(data, "--yes")
    assert "the state has applied them" not in text and "The state was made again" in text
    kept, owed = seen(data)
    assert len(kept) >= 44
    assert [payload for payload in owed if payload] == [payload for payload in ALL if payload in owed]
    assert len(owed) == MESSAGES and owed.count(b"") == 1


def test_damage_at_the_end_leaves_out_the_offsets_that_are_lost(data: Path) -> None:
    damage(data, -1, -1)
    end = LogReader(data / "log").bounds()[1]
    assert "its end is missing" in sentence(ember("retained", "ls", "--data", data))
    text = repaired(data, "--yes")
    (lost,) = lost_ranges(data / "log")
    assert lost[1] == end and f"Offsets {lost[0]} to {lost[1] - 1} after" in text
    assert LogReader(data / "log").bounds() == (1, end)
    assert seen(data)[1][:-2] == ALL[: len(seen(data)[1]) - 2]


def test_a_damaged_segment_header_and_identity_lose_no_record(data: Path) -> None:
    before = seen(data)
    for segment in (1, -1):
        path = segment_files(data / "log")[segment]
        path.write_bytes(flipped(path.read_bytes(), 3))
    (data / "log" / "identity.json").write_text("{")
    assert "lost" not in repaired(data)
    assert seen(data) == before
    assert len(list((aside(data) / "log").iterdir())) == 3


def test_a_part_of_an_archived_segment_is_not_kept(data: Path) -> None:
    damage(data, 2, 1)
    following = int(segment_files(data / "log")[3].stem)
    done = repair(data, SETTINGS, lambda found: None, is_archived=True)
    assert done.begins == following


def test_a_running_server_and_a_node_of_a_cluster_are_left_alone(data: Path) -> None:
    with server(data):
        assert sentence(ember("store", "repair", "--data", data)).endswith(": stop it first")
    (data / "cluster.json").write_text("{}")
    assert "is a node's of a cluster" in sentence(ember("store", "repair", "--data", data))
    assert "is not the data directory of a server" in sentence(ember("store", "repair", "--data", data / "none"))
    assert not (data / "none").exists()


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.timeout(400)  # some 50 repairs, each with syncs
def test_a_repair_that_is_killed_at_any_step_is_repaired_again(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, _ = seen(Path(shutil.copytree(filled, tmp_path / "before")))
    left = 0

    def step(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return change(*arguments, **options)

        return changed

    for steps in range(1_000):
        data = Path(shutil.copytree(filled, tmp_path / f"killed-{steps}"))
        damage(data, 2, 1)
        with monkeypatch.context() as patched:
            left = steps
            for owner, name in ((Path, "rename"), (Path, "replace"), (os, "link"), (os, "rename")):
                patched.setattr(owner, name, step(getattr(owner, name)))
            try:
                repair(data, SETTINGS, lambda found: None)
            except Killed:
                pass
            else:
                break
        try:
            repair(data, SETTINGS, lambda found: None)
            after, owed = seen(data)
        except BaseException as error:
            raise AssertionError(f"killed at step {steps}") from error
        assert after == kept, steps
        assert len(owed) == MESSAGES and owed.count(b"") == 1, steps
        shutil.rmtree(data)
    assert steps > 10
