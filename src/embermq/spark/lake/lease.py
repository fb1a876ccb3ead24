"""The lease of a lake at a URL: which pipeline writes to it, where no file can be locked.

Owns: the file `_embermq/lease.json`, which a running pipeline writes again and again, and the table `_embermq/writers`,
whose transaction identifier is the newest epoch. A pipeline that finds the file unchanged for the time of the lease, by
its own clock, takes over: it commits the next epoch to that table, where one of two wins, and then to every table. From
then on nothing that the other one commits is accepted (`lake.transactions`). So clocks and delays decide how soon a
pipeline takes over, never whether the tables are right.
"""

import json
import logging
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from typing import Any, Final, final

from delta.tables import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from embermq.lake.delta import claim_table, lost_to, newest_epoch, open_table, take_epoch
from embermq.lake.epochs import epoch_and_offset
from embermq.lake.errors import LakeError
from embermq.lake.files import json_object
from embermq.lake.lake import S3_STORE, S3_STORE_SETTING, STATE_DIRECTORY, Lake
from embermq.spark.lake.transactions import CONFLICTS

LEASE_S: Final = 30.0
POLL_S: Final = 0.5
BEATS: Final = 3
"""How often the file is written in the time of a lease."""

_FILE: Final = f"{STATE_DIRECTORY}/lease.json"
_WRITERS: Final = f"{STATE_DIRECTORY}/writers"
_WRITER: Final = "writer"
_logger: Final = logging.getLogger(__name__)


@final
class Lease:
    """The right to write to a lake, kept alive by a thread until it is ended or another pipeline has taken over."""

    __slots__ = ("_lake", "_lease_s", "_owner", "_beat", "_lost", "_ended", "_thread")

    def __init__(self, spark: SparkSession, lake: Lake, lease_s: float = LEASE_S) -> None:
        """Wait until nobody else has the lease, and take it. LakeError if another pipeline runs."""
        _check_store(spark, lake)
        self._lake: Final = lake
        self._lease_s: Final = lease_s
        self._owner: Final = f"{socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex[:8]}"
        self._beat = 0
        self._lost = 0
        self._ended: Final = threading.Event()
        known = wait_until_free(lake)
        lake.epoch = _take_epoch(spark, lake, known)
        self._write(is_ended=False)
        for name in lake.table_names():
            claim_table(lake, name)
        self._thread: Final = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """LeaseLost if another pipeline has taken over."""
        if self._lost:
            raise lost_to(self._lake, self._lost)

    def is_lost(self) -> bool:
        """Whether another pipeline has taken over.

        By the table: if this one stood still while it wrote the file, it may have replaced the other's newer one.
        """
        with suppress(LakeError, DeltaError):  # not known: what has failed already says why
            found = _newest_taken(self._lake)
            if found > (self._lake.epoch or 0):
                self._lost = found
        return self._lost > 0

    def end(self) -> None:
        """Let the next pipeline begin at once."""
        self._ended.set()
        self._thread.join()
        try:
            if not self.is_lost():
                self._write(is_ended=True)
        except OSError as error:
            _logger.warning("the lease of %s could not be ended: %s", self._lake.place, error)

    def _keep(self) -> None:
        while not self._ended.wait(self._lease_s / BEATS):
            try:
                self._lost = max(self._lost, self._epoch_above())
                if self._lost:
                    return
                self._write(is_ended=False)
            except OSError as error:
                _logger.warning("the lease of %s could not be renewed: %s", self._lake.place, error)

    def _epoch_above(self) -> int:
        """The epoch in the file if it is above our own, else 0."""
        found = _epoch(json_object(self._lake.files.read(_FILE)))
        return found if found > (self._lake.epoch or 0) else 0

    def _write(self, is_ended: bool) -> None:
        self._beat += 1
        lease = {
            "epoch": self._lake.epoch,
            "owner": self._owner,
            "beat": self._beat,
            "lease_s": self._lease_s,
            "ended": is_ended,
        }
        self._lake.files.write(_FILE, json.dumps(lease))


def wait_until_free(lake: Lake) -> int:
    """Wait until the lease has ended or is not renewed any more; its epoch. LakeError if another pipeline renews it."""
    first = json_object(_read(lake))
    if first and first.get("ended") is not True:
        lease_s = first.get("lease_s")
        wait_s = float(lease_s) if isinstance(lease_s, (int, float)) and 0 < lease_s < 3600 else LEASE_S
        _logger.info("waiting %g s to see whether %s still writes to %s", wait_s, first.get("owner"), lake.place)
        deadline_s = time.monotonic() + wait_s
        while time.monotonic() < deadline_s:
            now = json_object(_read(lake))
            if now.get("ended") is True:
                first = now
                break
            if now != first:
                raise LakeError(f"another pipeline writes to {lake.place} ({now.get('owner', 'unknown')})")
            time.sleep(POLL_S)
        else:
            _logger.warning("%s has not renewed its lease of %s: taking over", first.get("owner"), lake.place)
    return _epoch(first)


def lease_state(lake: Lake) -> dict[str, Any]:
    """What the lease's file says; empty if there is none."""
    return json_object(_read(lake))


def _read(lake: Lake) -> str | None:
    try:
        return lake.files.read(_FILE)
    except OSError as error:
        raise LakeError(f"the lease of {lake.place} cannot be read: {error}") from None


def _epoch(lease: dict[str, Any]) -> int:
    found = lease.get("epoch")
    return found if isinstance(found, int) else 0


def _take_epoch(spark: SparkSession, lake: Lake, known: int) -> int:
    """The next epoch, for this pipeline alone. LakeError if another one has taken it in the same moment."""
    path = lake.table(_WRITERS)
    with suppress(*CONFLICTS):  # another pipeline has made it
        DeltaTable.createIfNotExists(spark).location(path).addColumns(_NO_ROWS).execute()
    before = _newest_taken(lake)
    epoch = 1 + max([known, before, *(newest_epoch(lake, name) for name in lake.table_names())])
    if not take_epoch(lake, _WRITERS, _WRITER, before, epoch):
        raise LakeError(f"another pipeline writes to {lake.place}: it has taken over in this moment")
    return epoch


def _newest_taken(lake: Lake) -> int:
    return epoch_and_offset(open_table(lake, _WRITERS).transaction_version(_WRITER))[0]


_NO_ROWS: Final = StructType([StructField("epoch", LongType())])
"""The table has no rows: the version of its transaction identifier says it all."""


def _check_store(spark: SparkSession, lake: Lake) -> None:
    """LakeError if two writers could both make the same commit."""
    if lake.place.startswith("s3a:") and spark.conf.get(S3_STORE_SETTING, "") != S3_STORE:
        raise LakeError(f"{lake.place} can only be written in a session with {S3_STORE_SETTING} at {S3_STORE}")
