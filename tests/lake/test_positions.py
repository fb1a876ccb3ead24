"""Positions: what is trusted, what is not, and those of earlier versions. No Spark session is needed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from embermq.history.directory import DirectoryLog
from embermq.lake.errors import LakeError
from embermq.lake.lake import Lake
from embermq.lake.positions import Positions, check_log
from embermq.lake.stream_offsets import stream_offset
from support.recorded import Recorder

Recorders = Callable[..., Recorder]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    made.open()
    return made


def log_of(recorder: Recorders, name: str = "data", shift_us: int = 0) -> DirectoryLog:
    made = recorder(name)
    made.now_us += shift_us
    for number in range(20):
        made.publish("a", b"%d" % number)
    made.flush()
    return DirectoryLog(made.data)


def test_a_position_counts_while_the_tables_have_not_lost_a_commit(lake: Lake, recorder: Recorders) -> None:
    log = log_of(recorder)
    Positions(lake, log).save({"retained": 12}, {"retained": {"retained": 5, "retained_closed": 4}})
    found = Positions(lake, log)
    assert found.get("retained", {"retained": 5, "retained_closed": 9}) == 12
    assert found.get("retained", {"retained": 5, "retained_closed": 3}) is None
    assert found.get("retained", {}) is None
    assert found.get("messages", {}) is None
    found.forget("retained")
    assert Positions(lake, log).get("retained", {"retained": 9, "retained_closed": 9}) is None


def test_a_file_that_cannot_be_read_is_as_good_as_none(lake: Lake, recorder: Recorders) -> None:
    log = log_of(recorder)
    for text in ("{", "[]", '{"messages": 7}', '{"messages": {"offset": "x"}}'):
        (lake.state_directory / "positions.json").write_text(text)
        assert Positions(lake, log).get("messages", {}) is None


def test_the_checkpoints_of_an_earlier_version_are_continued_after_their_last_finished_batch(
    lake: Lake, recorder: Recorders
) -> None:
    mine, other = log_of(recorder), log_of(recorder, "other", 77)
    checkpoint = lake.state_directory / "checkpoints" / "messages"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    for batch, offset in (9, 5), (10, 11), (11, 21):
        (checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n" + json.dumps(stream_offset(mine, offset)))
    (checkpoint / "commits" / ".10.crc").touch()
    assert Positions(lake, mine).get("messages", {}) is None
    for batch in (9, 10):
        (checkpoint / "commits" / str(batch)).touch()
    with pytest.raises(LakeError, match=r"has the tables of another log than .*other.log: name another --lake"):
        check_log(lake, other)
    check_log(lake, mine)
    found = Positions(lake, mine)
    assert found.get("messages", {"messages": 0}) == 11
    found.save({"messages": 21}, {})
    assert not checkpoint.exists() and Positions(lake, mine).get("messages", {}) == 21
    (checkpoint / "offsets").mkdir(parents=True)  # as left by a downgrade: the newer file counts
    assert Positions(lake, mine).get("messages", {}) == 21
