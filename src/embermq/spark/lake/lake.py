"""The lake's own state: which version wrote it, who writes it now, and how far it is.

Owns: the files in `_embermq` beside the tables (the marker, the lock, the progress), and what they mean.
Never: a table's rows.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from embermq import __version__
from embermq.spark.errors import LakeError
from embermq.spark.lake.tables import STATE_DIRECTORY, Lake

LAKE_FORMAT: Final = 1
LOCK_WAIT_S: Final = 15.0
"""After kill -9 of a pipeline its Java process takes a moment to follow; it holds the lock until then."""


def _state(lake: Lake) -> Path:
    return lake.directory / STATE_DIRECTORY


def java_log(lake: Lake, name: str) -> Path:
    """Where Spark's Java process says what is for nobody else: `pipeline` or `question`, each of its last run."""
    return _state(lake) / f"{name}.log"


def spark_settings_of(lake: Lake) -> dict[str, str]:
    """Settings of a session for a lake: Spark's place for tables without one is in it, not where the user stands."""
    return {"spark.sql.warehouse.dir": str((_state(lake) / "warehouse").absolute())}


def open_lake(lake: Lake) -> None:
    """Check that this version may write here; a new directory becomes a lake."""
    marker = _state(lake) / "lake.json"
    if check_lake(lake):
        return
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        unnamed = marker.with_suffix(".new")
        unnamed.write_text(json.dumps({"format": LAKE_FORMAT, "embermq": __version__}))
        os.replace(unnamed, marker)
    except OSError as error:
        raise LakeError(f"{lake.directory} cannot be a lake: {error}") from None


def check_lake(lake: Lake) -> bool:
    """Whether there is a lake; LakeError if there is one that this version does not know."""
    marker = _state(lake) / "lake.json"
    try:
        found = json.loads(marker.read_text())
        version = int(found["format"])
    except FileNotFoundError:
        if any(lake.names()):
            raise LakeError(
                f"{lake.directory} has tables, but they are not a pipeline's: there is no {marker}"
            ) from None
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LakeError(f"{marker} cannot be read: {error}") from None
    if version > LAKE_FORMAT:
        raise LakeError(
            f"{lake.directory} was written by EmberMQ {found.get('embermq', '?')} with lake format {version}, "
            f"this one knows formats up to {LAKE_FORMAT}: use a newer EmberMQ"
        )
    return True


@contextmanager
def locked(lake: Lake, wait_s: float = LOCK_WAIT_S) -> Iterator[int]:
    """Hold the lake for one pipeline. Gives the lock's descriptor: the Java process must hold it as well."""
    path = _state(lake) / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise LakeError(f"another pipeline writes to {lake.directory}") from None
                time.sleep(0.1)
        try:
            yield descriptor
        finally:
            # Closing is not enough: the Java process may still hold a copy of the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def is_locked(lake: Lake) -> bool:
    """Whether a pipeline runs on this lake."""
    try:
        descriptor = os.open(_state(lake) / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def write_progress(lake: Lake, progress: dict[str, Any]) -> None:
    """Leave word of how far the pipeline is, for `status`, which needs no Spark then."""
    path = _state(lake) / "progress.json"
    unnamed = path.with_suffix(".new")
    unnamed.write_text(json.dumps(progress))
    os.replace(unnamed, path)


def read_progress(lake: Lake) -> dict[str, Any]:
    """What the last pipeline left; empty if there was none."""
    try:
        progress = json.loads((_state(lake) / "progress.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return progress if isinstance(progress, dict) else {}
