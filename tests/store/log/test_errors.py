"""The errors of the log keep their type and their sentence when they cross from one process to another."""

import pickle

import pytest

from embermq.store.log.errors import BadBlock, LogCorrupt, LogError, LogInUse, LogTrimmed, NewerFormat, NotALog


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (LogTrimmed(3, 9), "offset 3 is no longer in the log, which now begins at offset 9"),
        (LogCorrupt("f", 4, "d"), "the log is damaged: f, position 4: d"),
        (NotALog("d", "why"), "d is not an EmberMQ log: why"),
        (NewerFormat("f", 2, 1), "f has log format 2; this EmberMQ knows formats up to 1, use a newer one"),
        (LogInUse("d"), "d is in use by another server"),
        (BadBlock("the checksum does not match"), "the checksum does not match"),
    ],
)
def test_an_error_crosses_processes_with_its_sentence(error: LogError, sentence: str) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), sentence)
