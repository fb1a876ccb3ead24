"""What an engine of the store can say no to, each as a sentence for the operator.

Owns: `StoreError` and the errors of the journal and its state. Those of the log are in `store.log.errors`.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, final


def instant_text(instant_us: int) -> str:
    """An instant as sentences have it."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant_us)).isoformat()


class StoreError(Exception):
    """The store cannot take or give something now. Nothing was acknowledged on its behalf."""


@final
class StoreBusy(StoreError):
    """Another server uses the data directory."""


@final
class DirectoryLost(StoreError):
    """A file or directory of the store was removed, renamed or replaced while the store was open."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path: Final = path

    def __str__(self) -> str:
        return (
            f"{self.path} was removed, renamed or replaced while the server ran:"
            " stop the server, put its data directory back, and start it again"
        )


@final
class StateAhead(StoreError):
    """The state has applied records that the log does not hold."""


@final
class CheckpointMissing(StoreError):
    """The state lacks records that the log no longer holds, and no undamaged checkpoint stands for them."""


@final
class NewerSchema(StoreError):
    """The state was written by a newer EmberMQ."""


@final
class HistoryTrimmed(StoreError):
    """The history does not reach back to the instant that was asked for."""

    def __init__(self, instant_us: int, begins_us: int) -> None:
        super().__init__(instant_us, begins_us)
        self.instant_us: Final = instant_us
        self.begins_us: Final = begins_us

    def __str__(self) -> str:
        return f"the history is kept from {instant_text(self.begins_us)} on, the instant asked for is before that"


@final
class Fenced(StoreError):
    """Another server of the cluster is active now: this one must not acknowledge anything any more."""


@final
class NotWanted(StoreError):
    """Nobody waits any more for what was being found out."""
