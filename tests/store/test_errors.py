"""The errors of the engines as sentences."""

import pickle

from embermq.store.errors import HistoryTrimmed


def test_a_trimmed_history_says_from_when_on_it_is_kept() -> None:
    error = HistoryTrimmed(1, 1_700_000_000_000_000)
    assert str(error) == ("the history is kept from 2023-11-14T22:13:20+00:00 on, the instant asked for is before that")
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, HistoryTrimmed)
    assert (copy.instant_us, copy.begins_us, str(copy)) == (1, 1_700_000_000_000_000, str(error))
