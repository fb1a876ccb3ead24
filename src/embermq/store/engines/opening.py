"""Opening a data directory: its settings, its log, and its state brought up to the end of the log.

Owns: what a start does before the first group is committed, and building the state again from the log.
"""

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from embermq.store.budgets import RetainedBudget
from embermq.store.engines.committer import sync_segments
from embermq.store.engines.directory import DataDirectory
from embermq.store.engines.replay import MERGED_RECORDS, Progress, replay
from embermq.store.engines.retention import Retention
from embermq.store.log.writer import Log
from embermq.store.state.state import State, StateSettings


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """What is recorded, how durable it is, and how long it is kept.

    durability: "sync" survives a power cut, "os" the end of the process; "none" promises nothing and waits only for
    what the state must show. recording: "everything", "acknowledged" (QoS 1, QoS 2 and retained), or "filters" (those,
    and what `recording_filters` match). `state` and `merged_records` bound the work; tests make them small.
    """

    durability: Literal["sync", "os", "none"] = "sync"
    recording: Literal["everything", "acknowledged", "filters"] = "everything"
    recording_filters: tuple[str, ...] = ()
    segment_bytes: int = 128 * 1024 * 1024
    segment_age_s: int = 3600
    retention_bytes: int = 10 * 1024 * 1024 * 1024
    retention_age_s: int = 7 * 24 * 3600
    unread_bytes_max: int = 4 * 1024 * 1024 * 1024
    unarchived_bytes_max: int = 4 * 1024 * 1024 * 1024
    disk_reserve_bytes: int = 256 * 1024 * 1024
    budgets: tuple[RetainedBudget, ...] = ()
    state: StateSettings = field(default_factory=StateSettings)
    merged_records: int = MERGED_RECORDS

    def retention(self) -> Retention:
        """How much of the log is kept."""
        return Retention(
            self.retention_bytes,
            self.retention_age_s,
            self.unread_bytes_max,
            self.unarchived_bytes_max,
            self.disk_reserve_bytes,
        )


def open_log(directory: DataDirectory, settings: JournalSettings) -> Log:
    return Log(
        directory.log,
        segment_bytes=settings.segment_bytes,
        segment_age_s=settings.segment_age_s,
        sync=settings.durability == "sync",
    )


def open_state(
    directory: DataDirectory,
    log: Log,
    settings: JournalSettings,
    progress: Progress | None,
    accept_loss: bool = False,
) -> State:
    state = State(directory.state, settings.budgets, settings.state)
    try:
        state.retained.raise_history_floor(log.first_offset)
        if settings.durability != "sync":
            sync_segments(log, state.applied_offset() + 1)  # replay flushes the state, which must stay behind
        replay(log, state, progress, settings.merged_records, accept_loss)
        directory.keep_private()
    except BaseException:
        state.close()
        raise
    return state


def rebuild(
    directory: Path, settings: JournalSettings, progress: Progress | None = None, accept_loss: bool = False
) -> int:
    """Make a new state for a data directory from its log; returns the offset it has reached.

    `accept_loss`: even if the log was trimmed and no undamaged checkpoint has what was before. The old state is
    kept aside and put back if this fails.
    """
    data = DataDirectory(directory)
    before = directory / "state.before"
    try:
        log = open_log(data, settings)
        try:
            shutil.rmtree(before, ignore_errors=True)
            data.state.rename(before)
            try:
                data.state.mkdir(mode=0o700)
                state = open_state(data, log, settings, progress, accept_loss)
                state.close()
            except BaseException:
                shutil.rmtree(data.state, ignore_errors=True)
                before.rename(data.state)
                raise
            shutil.rmtree(before)
            return state.applied_offset()
        finally:
            log.close()
    finally:
        data.close()
