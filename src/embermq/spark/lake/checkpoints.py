"""The checkpoints of a lake's jobs, which Spark writes, and whether they belong to this log.

Owns: reading the newest offset of a checkpoint.
Never: writing one.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embermq.spark.errors import LakeError, PipelineError
from embermq.spark.lake.lake import Lake
from embermq.spark.source.stream_offsets import check_same_log


def check_checkpoints(lake: Lake, log_directory: Path) -> None:
    """Refuse a lake whose jobs have read another log than the one in a directory."""
    for job in sorted(Path(lake.checkpoint("")).glob("*")):
        try:
            check_same_log(log_directory, _newest_offset(job / "offsets"))
        except PipelineError:
            raise LakeError(
                f"{lake.directory} has the tables of another log than {log_directory}: name another --lake, or delete "
                "this one to have it built again"
            ) from None


def _newest_offset(offsets: Path) -> Mapping[str, Any]:
    """Where the newest planned batch of a job ends; empty if Spark has written none, or none completely."""
    batches = [int(path.name) for path in offsets.glob("*") if path.name.isdigit()]
    try:
        newest = json.loads((offsets / str(max(batches))).read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return newest if isinstance(newest, dict) else {}
