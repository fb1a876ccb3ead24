"""The file of refused rows."""

import json
from pathlib import Path

import pytest

from embermq.spark.sink.publisher import PublishFailed, Refused
from embermq.spark.sink.refusals import Refusals


def test_refused_rows_are_counted_and_written(tmp_path: Path) -> None:
    refusals = Refusals(str(tmp_path / "new" / "folder"), "task")
    refusals.add(Refused(b"a", "é".encode(), 0x87))
    refusals.add(Refused(b"b", b"\xff", 0x99))
    refusals.add(Refused(b"a", b"", 0x87))
    refusals.close()
    assert refusals.counts == {"Not authorized": 2, "Payload format invalid": 1}
    lines = (tmp_path / "new" / "folder" / "task.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"topic": "a", "payload": "é", "reason_code": 0x87, "reason": "Not authorized"},
        {"topic": "b", "payload_base64": "/w==", "reason_code": 0x99, "reason": "Payload format invalid"},
        {"topic": "a", "payload": "", "reason_code": 0x87, "reason": "Not authorized"},
    ]


def test_another_attempt_replaces_the_file_and_without_refusals_there_is_none(tmp_path: Path) -> None:
    first = Refusals(str(tmp_path), "task")
    first.add(Refused(b"a", b"", 0x87))
    first.close()
    Refusals(str(tmp_path), "task").close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_fails_the_write(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    refusals = Refusals(str(tmp_path / "taken" / "below"), "task")
    with pytest.raises(PublishFailed, match="cannot write the refused rows"):
        refusals.add(Refused(b"a", b"", 0x87))
