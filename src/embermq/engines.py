"""The engines: the one place that names them, and turns settings into an open store."""

import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from embermq.errors import ConfigError
from embermq.store.budgets import RetainedBudget
from embermq.store.engines.memory import MemoryStore
from embermq.store.engines.shared_log import PLACE
from embermq.store.interface import Store

if TYPE_CHECKING:
    from embermq.cluster.sequencer import KafkaOptions
    from embermq.settings import Settings, StoreSettings
    from embermq.store.engines.opening import JournalSettings
    from embermq.store.engines.repair import Agree, Repaired
    from embermq.store.engines.retention import Archiver

CallSoon = Callable[[Callable[[], None]], None]
"""Runs a function on the broker's thread, from any other."""
OpenStore = Callable[[CallSoon], Store]
Progress = Callable[[int, int], None]
"""Called with how much of a long task is done, and of how much."""

CONTROL_SOCKET: Final = "control.sock"
"""The socket in its data directory on which a running server takes an operator's requests."""
FOR_EVER: Final = 1 << 62


def open_store(settings: "StoreSettings", call_soon: CallSoon) -> Store:
    """The store that the settings describe; a `StoreError` says why it cannot be opened."""
    if settings.memory:
        return MemoryStore(_budgets(settings))
    # Imports RocksDB and numpy, which a broker in memory does not need.
    from embermq.store.engines.disk import DiskStore

    directory = settings.directory
    if not settings.archive:
        store = DiskStore(directory, call_soon, journal_settings(settings))
    else:
        from embermq.history.stretches import archived_history

        trimmed = partial(archived_history, settings.archive, directory / "log")
        store = DiskStore(
            directory, call_soon, journal_settings(settings), archiver=_archiver(settings), trimmed=trimmed
        )
    (directory / PLACE).unlink(missing_ok=True)  # it was a node's, and is a single server's from now on
    return store


def open_node(settings: "Settings", call_soon: CallSoon) -> Store:
    """The store of a node of a cluster: a standby at first. A `StoreError` says why it cannot be one."""
    from embermq.cluster.kafka import KafkaSequencer
    from embermq.cluster.node import Node
    from embermq.cluster.place import enter
    from embermq.store.engines.disk import DiskStore

    cluster, directory = settings.cluster, settings.store.directory
    sequencer = KafkaSequencer(kafka_options(settings))
    try:
        rules = enter(directory, sequencer)
        instance = secrets.randbits(63) | 1  # 0 is nobody
        node = Node(sequencer, rules, cluster.node, instance, cluster.node_timeout_ms, cluster.reachable_at)
        journal = replace(journal_settings(settings.store), durability="os")  # the shared log is what must last
        store = DiskStore(directory, call_soon, journal, shared=node)
    except BaseException:
        sequencer.close()
        raise
    node.begin(store)
    return store


def kafka_options(settings: "Settings") -> "KafkaOptions":
    from embermq.cluster.sequencer import KafkaOptions

    names = {field.name for field in fields(KafkaOptions)}  # the settings have the same names
    return KafkaOptions(**settings.cluster.model_dump(include=names))


def open_stopped_store(settings: "StoreSettings", call_soon: CallSoon, progress: Progress | None = None) -> Store:
    """The store of a stopped server, for a command. Nothing is trimmed: only servers do that."""
    from embermq.store.engines.disk import DiskStore

    kept = settings.model_copy(update={"retention_bytes": FOR_EVER, "retention_age_s": FOR_EVER // 1_000_000})
    return DiskStore(settings.directory, call_soon, journal_settings(kept), progress)


def rebuild_state(settings: "StoreSettings", progress: Progress | None = None, accept_loss: bool = False) -> int:
    """Rebuild the state in a stopped server's directory from its log; returns the offset it has reached.

    `accept_loss`: even if the log was trimmed and no undamaged checkpoint has what was before.
    """
    from embermq.store.engines.opening import rebuild

    return rebuild(settings.directory, journal_settings(settings), progress, accept_loss)


def repair_directory(settings: "StoreSettings", agree: "Agree") -> "Repaired":
    """Make a stopped server's damaged directory one that starts; `agree` is called before records leave the log."""
    from embermq.store.engines.repair import repair

    return repair(settings.directory, journal_settings(settings), agree, bool(settings.archive))


def journal_settings(settings: "StoreSettings") -> "JournalSettings":
    from embermq.store.engines.opening import JournalSettings

    names = {field.name for field in fields(JournalSettings)} - {"budgets"}  # the settings have the same names
    return JournalSettings(**settings.model_dump(include=names), budgets=_budgets(settings))


def _archiver(settings: "StoreSettings") -> "Archiver":
    # Imports pyarrow's file systems.
    from embermq.archive.restore import refuse_new_log
    from embermq.archive.retention import ArchiveRetention
    from embermq.archive.uploader import Uploader, UploadSettings

    refuse_new_log(settings.directory / "log", settings.archive)
    retention = ArchiveRetention(settings.archive_retention_bytes, settings.archive_retention_age_s)
    return Uploader(UploadSettings(settings.archive, retention))


def _budgets(settings: "StoreSettings") -> tuple[RetainedBudget, ...]:
    return tuple(RetainedBudget(**budget.model_dump()) for budget in settings.budgets)


def embedded_store(data: Path | str | None, store: Store | None) -> OpenStore:
    """For a broker inside a program: the store given, one in a directory with the usual settings, or one in memory."""
    if store is not None:
        if data is not None:
            raise ConfigError("expected data or store, not both")
        return lambda call_soon: store
    if data is None:
        return lambda call_soon: MemoryStore()
    if data == "":  # `Path` takes it for the current directory
        raise ConfigError("data: expected a directory, not ''")

    def in_directory(call_soon: CallSoon) -> Store:
        from embermq.settings import StoreSettings

        return open_store(StoreSettings(directory=Path(data)), call_soon)

    return in_directory
