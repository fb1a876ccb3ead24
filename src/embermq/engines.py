"""The engines: the one place that names them, and turns settings into an open store."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from embermq.errors import ConfigError
from embermq.store.budgets import RetainedBudget
from embermq.store.interface import Store
from embermq.store.memory import MemoryStore

if TYPE_CHECKING:
    from embermq.config import StoreSettings

CallSoon = Callable[[Callable[[], None]], None]
"""Runs a function on the broker's thread, from any other."""
OpenStore = Callable[[CallSoon], Store]


def open_store(settings: "StoreSettings", call_soon: CallSoon) -> Store:
    """The store that the settings describe; a `StoreError` says why it cannot be opened."""
    budgets = tuple(RetainedBudget(**budget.model_dump()) for budget in settings.budgets)
    if settings.memory:
        return MemoryStore(budgets)
    # RocksDB, numpy and what they load: not for a broker that keeps nothing.
    from embermq.store.journal import Journal, JournalSettings

    journal = JournalSettings(
        durability=settings.durability,
        recording=settings.recording,
        recording_filters=settings.recording_filters,
        segment_bytes=settings.segment_bytes,
        segment_age_s=settings.segment_age_s,
        retention_bytes=settings.retention_bytes,
        retention_age_s=settings.retention_age_s,
        budgets=budgets,
    )
    return Journal(settings.directory, call_soon, journal)


def embedded_store(data: Path | str | None, store: Store | None) -> OpenStore:
    """For a broker inside a program: the store given, one in a directory with the usual settings, or one in memory."""
    if store is not None:
        if data is not None:
            raise ConfigError("expected data or store, not both")
        return lambda call_soon: store
    if data is None:
        return lambda call_soon: MemoryStore()

    def in_directory(call_soon: CallSoon) -> Store:
        from embermq.config import StoreSettings

        return open_store(StoreSettings(directory=Path(data)), call_soon)

    return in_directory
