"""The Subscription Identifiers of queued messages: runs, their form in a record, and cutting them."""

from hypothesis import given
from hypothesis import strategies as st

from embermq.store.log.queued_ids import IdRun, add_ids, cut_runs, pack_runs, unpack_runs

IDS = st.lists(st.sampled_from([(), (1,), (2,), (1, 2), (268_435_455, 128)]), max_size=60)


def runs_of(entries: list[tuple[int, ...]]) -> list[IdRun]:
    runs: list[IdRun] = []
    for index, ids in enumerate(entries):
        if ids:
            add_ids(runs, index, ids)
    return runs


def entries_of(runs: list[IdRun], count: int) -> list[tuple[int, ...]]:
    entries: list[tuple[int, ...]] = [()] * count
    for run in runs:
        entries[run.first : run.first + run.length] = [run.subscription_ids] * run.length
    return entries


@given(IDS)
def test_packed_runs_give_the_same_identifiers(entries: list[tuple[int, ...]]) -> None:
    assert entries_of(unpack_runs(pack_runs(runs_of(entries))), len(entries)) == entries


@given(IDS, st.integers(0, 60), st.integers(0, 60))
def test_a_cut_has_the_identifiers_of_its_entries(entries: list[tuple[int, ...]], start: int, length: int) -> None:
    cut = entries[start : start + length]
    assert entries_of(cut_runs(runs_of(entries), start, start + length), len(cut)) == cut


def test_equal_identifiers_in_sequence_are_one_run() -> None:
    packed = pack_runs(runs_of([(), (), (5,), (5,), (5,), (), (5, 200)]))
    assert packed == bytes((2, 3, 1, 5)) + bytes((1, 1, 2, 5, 0xC8, 0x01))


def test_entries_without_identifiers_need_no_bytes() -> None:
    assert pack_runs(runs_of([(), ()])) == b""
