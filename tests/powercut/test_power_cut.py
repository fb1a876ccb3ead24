"""What a power cut may leave of a real server's files: nothing that was acknowledged is lost, and it starts."""

from pathlib import Path
from random import Random

import pytest

from powercut.events import read_events
from powercut.images import Images
from powercut.opened import opened
from powercut.recording import Recording, is_possible
from powercut.trying import Outcome, Plan, try_images
from support.server_process import ServerProcess, retained

pytestmark = [pytest.mark.skipif(not is_possible(), reason="needs Linux and cc"), pytest.mark.timeout(600)]

SEED = 38


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = Recording(tmp_path_factory.mktemp("recording"), SEED)
    made.run(lives=2, messages=60)
    return made


def tried(recording: Recording, count: int, *, ignoring: str = "") -> Outcome:
    return try_images(Plan(recording.events, recording.root, count, SEED, ignoring=ignoring))


def test_the_recorder_has_seen_every_change(recording: Recording) -> None:
    images = Images(recording.root)
    for event in read_events(recording.events):
        images.follow(event)
    real = {
        str(path.relative_to(recording.root)): path.read_bytes() for path in recording.root.rglob("*") if path.is_file()
    }
    assert images.present() == real


def test_nothing_acknowledged_is_lost_by_a_power_cut(recording: Recording) -> None:
    outcome = tried(recording, 40)
    assert outcome.violations == []
    assert outcome.images == 40 and outcome.promises > 50 and outcome.syncs > 10


@pytest.mark.parametrize("left_out", [r"data/log/.*\.log", "data/log", "data"])
def test_a_sync_that_is_left_out_is_found(recording: Recording, left_out: str) -> None:
    """Of the blocks, of the names of segments, of the names of the directories themselves."""
    assert tried(recording, 20, ignoring=left_out).violations


@pytest.mark.long
def test_a_server_starts_on_what_a_power_cut_leaves(recording: Recording, tmp_path: Path) -> None:
    events = list(read_events(recording.events))
    images = Images(recording.root)
    for number, event in enumerate(events, start=1):
        images.follow(event)
        if number % (len(events) // 8):
            continue
        for copy in ("seen", "served"):
            images.make(tmp_path / f"{copy}-{number}", Random(f"{SEED} {number}"))
        found = opened(tmp_path / f"seen-{number}" / "data", "sync", True)
        with ServerProcess(tmp_path / f"served-{number}" / "data", tmp_path / "server.log") as server:
            assert retained(server, "kept/#") == found.retained


@pytest.mark.long
def test_with_os_a_power_cut_loses_the_newest_or_is_told_as_damage(tmp_path: Path) -> None:
    recording = Recording(tmp_path, SEED, "os")
    recording.run(lives=2, messages=60)
    outcome = try_images(Plan(recording.events, recording.root, 200, SEED, "os", "os"))
    assert outcome.violations == []
    assert outcome.counts["without the newest messages"] > 0
    # Asked for what "sync" promises, the same images fail: the test can tell the two apart.
    assert try_images(Plan(recording.events, recording.root, 200, SEED, "os", "sync")).violations
