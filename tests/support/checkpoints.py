"""Checkpoints of a log that a test has written, as a server would have written them."""

from pathlib import Path

from embermq.store.log.checkpoint import CheckpointWriter
from embermq.store.state.state import State
from support.recorded import Recorder


def trim_with_checkpoint(made: Recorder, near: int, scratch: Path) -> int:
    """Trim a log to the first segment that begins at an offset or later, with its checkpoint; where it begins now."""
    offset = next(info.first_offset for info in made.log.segments() if info.first_offset >= near)
    state = State(scratch)
    timestamp_us = 0
    for group in made.whole:
        if group.first_offset + len(group) <= offset:
            state.apply(group)
            timestamp_us = group.rows[-1].timestamp_us
    writer = CheckpointWriter(made.data / "log", offset, timestamp_us)
    for row in state.view().rows(timestamp_us):
        writer.add(row)
    writer.finish()
    state.close()
    made.log.trim(offset)
    return offset
