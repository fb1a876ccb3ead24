"""Maintenance of a lake inside a running pipeline: small files are joined, old rows and unneeded files are removed.

Owns: when each is done, and the file `_embermq/maintenance.json`, which remembers it across runs.
Each step is one commit of one table, made between two batches by the pipeline itself: there is no second writer, and a
crash between two commits leaves every table as one of them made it.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from embermq.lake.delta import day_bytes, open_table, table_bytes
from embermq.lake.files import json_object
from embermq.lake.lake import STATE_DIRECTORY, Lake
from embermq.lake.schema import DAY, definition_of
from embermq.lake.settings import PipelineSettings
from embermq.spark.lake.compaction import join_files
from embermq.spark.lake.gaps import record_removal
from embermq.spark.lake.tables import read_table
from embermq.spark.lake.transactions import CONFLICTS

logger = logging.getLogger(__name__)

DEFAULTS: Final = PipelineSettings()
TIDY_EVERY_S: Final = 6 * 3600.0
SMALL_FILE_BYTES: Final = 16 << 20
"""Larger files are joined once, when their day is over."""
RUNNING_DAY_BYTES_MAX: Final = 1 << 30
JOIN_ALL_EVERY: Final = 3
"""Most compactions join only files that have come since the one before; every third joins all small ones. Joined each
time, a table of a few hours would cost more than all the rest of the pipeline."""

_FILE: Final = f"{STATE_DIRECTORY}/maintenance.json"
_MIN_FILE_SIZE: Final = "spark.databricks.delta.optimize.minFileSize"
_RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True)
class MaintenanceSettings:
    """How a lake is kept tidy."""

    compact_files: int = DEFAULTS.compact_files
    """The commits of a table after which its small files are joined."""
    vacuum_hours: float = DEFAULTS.vacuum_hours
    """How long files stay that no table version of now needs: queries that began earlier must have ended."""
    retention: Mapping[str, timedelta] = field(default_factory=dict)
    """The age at which rows of a table are removed; none without an entry."""


@final
class Maintenance:
    """What a lake needs, and when that was last done."""

    __slots__ = ("_spark", "_lake", "_settings", "_state")

    def __init__(self, spark: SparkSession, lake: Lake, settings: MaintenanceSettings) -> None:
        self._spark: Final = spark
        self._lake: Final = lake
        self._settings: Final = settings
        self._state: Final[dict[str, Any]] = _read(lake)

    def after_batch(self, versions: Mapping[str, int]) -> list[str]:
        """Do what is due for these tables, given their versions; what was done, a sentence each."""
        done = []
        compacted: dict[str, int] = self._state.setdefault("compacted", {})  # the version after the last compaction
        for name, version in versions.items():
            before = compacted.get(name, 0)
            if version < before or version - before >= self._settings.compact_files:  # lower: it was built again
                with _unless_changed(name):
                    done += self._compact(name)
                compacted[name] = open_table(self._lake, name).version()
                self._write()
        if time.time() - float(self._state.setdefault("tidied", time.time())) >= TIDY_EVERY_S:
            done += self.tidy(datetime.now(UTC))
        return done

    def tidy(self, now: datetime) -> list[str]:
        """Remove rows that are too old and files that are not needed, in all tables; lay out days that are over."""
        done = []
        for name in self._lake.table_names():
            with _unless_changed(name):
                done += self._remove_old_rows(name, now)
                done += self._cluster_days(name)
            self._spark.conf.set(_RETENTION_CHECK, "false")
            self._table(name).vacuum(self._settings.vacuum_hours)
        self._state["tidied"] = time.time()
        self._write()
        return done

    def _table(self, name: str) -> DeltaTable:
        return DeltaTable.forPath(self._spark, self._lake.table(name))

    def _compact(self, name: str) -> list[str]:
        """Join small files of a table: the new ones, or all of them."""
        numbers: dict[str, int] = self._state.setdefault("compactions", {})
        sizes: dict[str, int] = self._state.setdefault("sizes", {})
        numbers[name] = numbers.get(name, 0) + 1
        # A new file is at most about half of all that has come since, one that was made of as much before is about all.
        new_file_bytes = max(1, 2 * (table_bytes(self._lake, name) - sizes.get(name, 0)) // 3)
        is_for_all = numbers[name] % JOIN_ALL_EVERY == 0
        file_bytes = SMALL_FILE_BYTES if is_for_all else min(new_file_bytes, SMALL_FILE_BYTES)
        self._spark.conf.set(_MIN_FILE_SIZE, str(file_bytes))
        done = join_files(name, self._table(name))
        sizes[name] = table_bytes(self._lake, name)
        return [str(done)] if done.files_removed else []

    def _cluster_days(self, name: str) -> list[str]:
        """Put the messages of a topic side by side, once for each day that is over, and as far as it is for the last.

        A last day of more bytes waits until it is over: to rewrite it each time would keep the batches waiting.
        """
        found = self._lake.files.names(name)
        days = sorted(entry.partition("=")[2] for entry in found if entry.startswith(f"{DAY}="))
        clustered = self._state.setdefault("clustered", {})
        done = []
        for day in days[:-1]:
            if day > clustered.get(name, ""):
                done += self._cluster(name, day)
                clustered[name] = day
                self._write()
        return done + (self._cluster_last(name, days[-1]) if days else [])

    def _cluster_last(self, name: str, day: str) -> list[str]:
        running: dict[str, list[Any]] = self._state.setdefault("running", {})  # a day, its bytes when it was laid out
        size_bytes = day_bytes(self._lake, name, day)
        if size_bytes > RUNNING_DAY_BYTES_MAX or running.get(name) == [day, size_bytes]:
            return []
        done = self._cluster(name, day)
        running[name] = [day, day_bytes(self._lake, name, day)]
        return done

    def _cluster(self, name: str, day: str) -> list[str]:
        self._table(name).optimize().where(f"{DAY} = '{day}'").executeZOrderBy("topic")
        return [f"{name}: laid out {day} by topic"]

    def _remove_old_rows(self, name: str, now: datetime) -> list[str]:
        age = self._settings.retention.get(name)
        if age is None:
            return []
        rows = read_table(self._spark, self._lake, name)
        column = definition_of(name, rows.columns).age_column
        bound = (now - age).replace(microsecond=0)
        if column == DAY:
            bound = bound.replace(hour=0, minute=0, second=0)
        literal = f"date'{bound:%Y-%m-%d}'" if column == DAY else f"timestamp'{bound:%Y-%m-%d %H:%M:%S}'"
        old = rows.where(f"{column} < {literal}")
        if "offset" in old.columns:  # a row is a record, and without it the table does not know what was then
            last = old.agg({"offset": "max"}).collect()[0][0]
            if last is None:
                return []
            record_removal(self._spark, self._lake, name, last, bound)
        self._table(name).delete(f"{column} < {literal}")
        return [f"{name}: rows before {bound:%Y-%m-%d %H:%M:%S} were removed"]

    def _write(self) -> None:
        self._lake.files.write(_FILE, json.dumps(self._state))


@contextmanager
def _unless_changed(name: str) -> Iterator[None]:
    """Leaves a step out if `ember pipeline compact` has changed the table meanwhile; it comes again."""
    try:
        yield
    except CONFLICTS:
        logger.warning("%s was changed by another command; it is compacted later", name)


def _read(lake: Lake) -> dict[str, Any]:
    try:
        return json_object(lake.files.read(_FILE))
    except OSError:
        return {}  # everything is then done once more, which changes nothing
