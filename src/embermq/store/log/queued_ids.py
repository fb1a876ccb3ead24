"""The Subscription Identifiers of the entries of a QUEUED record (5.0, 3.3.2.3.8; docs/log-format.md).

Owns: their form in the record's properties, which the state keeps beside the entries.
Most messages of a queue match the same subscriptions, so consecutive entries with equal identifiers are one run.
"""

from collections.abc import Sequence
from typing import Final, final

from embermq.protocol.mqtt.fields import Fields, variable_byte_integer

RUN_BYTES: Final = 8
"""About what a run takes: for the bound of a group, not for the file."""


@final
class IdRun:
    """Consecutive entries with the same identifiers: the index of the first one, how many, and the identifiers."""

    def __init__(self, first: int, length: int, subscription_ids: tuple[int, ...]) -> None:
        self.first: Final = first
        self.length = length
        self.subscription_ids: Final = subscription_ids

    def grow(self) -> None:
        """The next entry has them too."""
        self.length += 1


def add_ids(runs: list[IdRun], index: int, subscription_ids: tuple[int, ...]) -> None:
    """The entry at an index, which is above all before, has these identifiers."""
    if runs:
        last = runs[-1]
        if last.first + last.length == index and last.subscription_ids == subscription_ids:
            last.grow()
            return
    runs.append(IdRun(index, 1, subscription_ids))


def pack_runs(runs: Sequence[IdRun]) -> bytes:
    """For each run: how many entries without identifiers precede it, its length, the count of identifiers and these."""
    parts: list[bytes] = []
    end = 0
    for run in runs:
        parts.append(variable_byte_integer(run.first - end))
        parts.append(variable_byte_integer(run.length))
        parts.append(variable_byte_integer(len(run.subscription_ids)))
        for subscription_id in run.subscription_ids:
            parts.append(variable_byte_integer(subscription_id))
        end = run.first + run.length
    return b"".join(parts)


def unpack_runs(packed: bytes) -> list[IdRun]:
    runs: list[IdRun] = []
    fields = Fields(packed, 0, len(packed))
    first = 0
    while fields.more():
        first += fields.variable_byte_integer()
        length = fields.variable_byte_integer()
        count = fields.variable_byte_integer()
        runs.append(IdRun(first, length, tuple([fields.variable_byte_integer() for _ in range(count)])))
        first += length
    return runs


def cut_runs(runs: Sequence[IdRun], start: int, stop: int) -> list[IdRun]:
    """The runs of the entries from `start` up to but without `stop`, counted from `start` on."""
    found: list[IdRun] = []
    for run in runs:
        first = max(run.first, start)
        length = min(run.first + run.length, stop) - first
        if length > 0:
            found.append(IdRun(first - start, length, run.subscription_ids))
    return found
