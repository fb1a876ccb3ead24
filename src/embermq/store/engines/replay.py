"""Replay: applying to the state what the log has and it has not.

Owns: catching up at start, from a checkpoint if the log has been trimmed since, and refusing a state that is ahead of
its log.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from embermq.store.errors import CheckpointMissing, StateAhead
from embermq.store.log.checkpoint import undamaged_checkpoint
from embermq.store.log.writer import Log
from embermq.store.rows import Group
from embermq.store.state.state import State

MERGED_RECORDS: Final = 2_000
"""Small groups are applied together, up to this many records."""

_logger: Final = logging.getLogger("embermq.store")

Progress = Callable[[int, int], None]
"""Is told how many records were applied, of how many."""


def replay(
    log: Log,
    state: State,
    progress: Progress | None = None,
    merged_records: int = MERGED_RECORDS,
    accept_loss: bool = False,
) -> None:
    """Bring the state up to the end of the log; with `accept_loss` even if no checkpoint has what was trimmed."""
    applied = state.applied_offset()
    if applied >= log.next_offset:
        raise StateAhead(
            f"the state has applied offset {applied}, but the log ends before {log.next_offset}: its end is missing;"
            " put the log back, or accept what it has with `ember store rebuild`"
        )
    if applied + 1 < log.first_offset:
        _restore(log, state, accept_loss)
    start = max(state.applied_offset() + 1, log.first_offset)
    total = log.next_offset - start
    for group in merged(log.groups_from(start), merged_records):
        state.apply(group)
        if state.wants_flush():
            state.flush(wait=False)
        if progress is not None:
            progress(group.next_offset - start, total)


def _restore(log: Log, state: State, accept_loss: bool) -> None:
    """Make the state from a checkpoint, because the log no longer has what it lacks."""
    checkpoint = undamaged_checkpoint(log.directory, log.first_offset, log.next_offset)
    lacking = f"offsets {state.applied_offset() + 1} to {log.first_offset - 1}"
    if checkpoint is not None:
        _logger.warning("the log no longer has %s: the state is made from %s", lacking, checkpoint.path)
        state.restore(checkpoint)
    elif accept_loss:
        _logger.warning("the log no longer has %s: the state goes on without", lacking)
        state.history.begin(log.first_offset, log.segments()[0].first_timestamp_us)
    else:
        raise CheckpointMissing(
            f"the state lacks {lacking}, which the log in {log.directory} no longer has, and there is no undamaged"
            " checkpoint: put the state or the checkpoint back, or accept the loss with `ember store rebuild`"
        )


def merged(groups: Iterable[Group], records_max: int) -> Iterator[Group]:
    """The same records in fewer groups."""
    gathered: Group | None = None
    for group in groups:
        if gathered is None:
            gathered = group
        elif len(gathered) + len(group) > records_max or group.first_offset != gathered.next_offset:
            yield gathered
            gathered = group
        else:
            gathered.extend(group)
    if gathered is not None:
        yield gathered
