"""The errors of a lake and of its pipeline. Each is one sentence for the user, who sees no stack trace."""

from datetime import datetime
from importlib.util import find_spec
from typing import Final

from embermq.errors import PipelineError as PipelineError


class SqlMissing(PipelineError):
    """The packages for queries without Spark are not installed."""


def what_is_missing() -> str | None:
    """One sentence about what is missing to read tables without Spark; None if nothing is."""
    if any(find_spec(package) is None for package in ("duckdb", "deltalake", "pyarrow")):
        return "SQL needs DuckDB and delta-rs, which are an extra: pip install 'embermq[sql]'"
    return None


class LakeError(PipelineError):
    """This version may not write to the lake, or another pipeline writes to it."""


class LeaseLost(LakeError):
    """Another pipeline has taken over the lake while this one ran: this one can commit nothing any more, and ends."""


REMOVED: Final = "removed by the retention of the lake"
"""Why there is a gap in the table `gaps` that the pipeline has made itself."""


class NotKnown(PipelineError):
    """The retained set at an instant is not known: the lake does not reach back, or has not come that far."""


class InGap(NotKnown):
    """It lies in a gap: records were trimmed before the pipeline had read them, or rows were removed from the lake."""

    def __init__(self, instant: datetime, from_offset: int, to_offset: int, known_from: datetime, why: str) -> None:
        reason = REMOVED if why == REMOVED else "trimmed before the pipeline had read them"
        super().__init__(
            f"the retained set at {instant.isoformat()} is not known: offsets {from_offset} to {to_offset} were "
            f"{reason}; it is known again from {known_from.isoformat()} on"
        )
