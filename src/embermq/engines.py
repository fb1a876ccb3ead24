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


def open_store(settings: "StoreSettings") -> Store:
    """The store that the settings describe; a `StoreError` says why it cannot be opened."""
    budgets = [RetainedBudget(**budget.model_dump()) for budget in settings.budgets]
    if settings.memory:
        return MemoryStore(budgets)
    raise ConfigError(f"store.directory {settings.directory}: expected store.memory = true (--memory)")


def store_opener(data: Path | str | None, store: Store | None) -> Callable[[], Store]:
    """For a broker that is embedded: a store of its own, one in a directory, or one in memory."""
    if store is not None:
        if data is not None:
            raise ConfigError("expected data or store, not both")
        return lambda: store
    if data is None:
        return MemoryStore
    directory = Path(data)

    def open_directory() -> Store:
        from embermq.config import StoreSettings

        return open_store(StoreSettings(directory=directory))

    return open_directory
