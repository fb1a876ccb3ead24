"""The tables of a lake as Delta tables, without Spark: how far each has applied the log, and who may write to it.

Owns: the transaction identifier that Delta keeps with every commit: the job's name, and as its version the writer's
epoch with the last offset of the log that was applied (`lake.epochs`). It changes together with the rows, so that a
batch which comes again after a crash is recognised, even when positions are lost and the batches have other bounds; and
a writer that was deposed cannot commit: its version is lower, or Delta finds that the identifier has changed since.
Never: what the rows are. Importing this module imports no delta-rs.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from embermq.lake.epochs import NOTHING_APPLIED, epoch_and_offset, transaction_version
from embermq.lake.errors import LakeError, LeaseLost
from embermq.lake.lake import Lake
from embermq.lake.schema import DAY, GAPS, RETAINED, RETAINED_CLOSED, TABLES
from embermq.lake.stored_files import ADVICE, StoredFiles, client_options, plain

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

CLAIM_ATTEMPTS: Final = 5
_CODEC: Final = "ZSTD"


class Applied(NamedTuple):
    """The newest version of a table, the epoch of its last writer, and the last offset that a job has applied."""

    version: int
    epoch: int
    through: int


def open_table(lake: Lake, name: str) -> "DeltaTable":
    """A table of a lake at its newest version."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    options = {**client_options(lake.place), **lake.credentials}
    try:
        return DeltaTable(lake.table(name), storage_options=options)
    except (DeltaError, OSError) as error:
        advice = f"; {ADVICE}" if isinstance(lake.files, StoredFiles) else ""
        raise LakeError(f"the table {name} in {lake.place} cannot be read: {plain(str(error))}{advice}") from None


def applied(lake: Lake, table: str, job: str) -> Applied:
    """How far a job has brought a table. LeaseLost if a newer writer than the one of this lake has it."""
    opened = open_table(lake, table)
    epoch, through = epoch_and_offset(opened.transaction_version(job))
    _check_epoch(lake, epoch)
    return Applied(opened.version(), epoch, through)


def applied_offset(lake: Lake, table: str, job: str) -> int:
    """The last offset that a job has applied to a table; NOTHING_APPLIED if none."""
    return applied(lake, table, job).through


def append_rows(opened: "DeltaTable", rows: pa.Table, job: str, version: int) -> None:
    """Append rows; does nothing if the table has the job's transaction with this version or a higher one."""
    from deltalake import WriterProperties, write_deltalake

    known = opened.transaction_version(job)
    if known is None or known < version:
        properties = WriterProperties(compression=_CODEC)
        transactions = _transactions({job: version})
        write_deltalake(opened, rows, mode="append", writer_properties=properties, commit_properties=transactions)


def table_bytes(lake: Lake, table: str) -> int:
    """The size of the files that the newest version of a table has."""
    return sum(_file_bytes(lake, table).values())


def day_bytes(lake: Lake, table: str, day: str) -> int:
    """The size of the files that the newest version of a table has for a day."""
    return sum(size for path, size in _file_bytes(lake, table).items() if path.startswith(f"{DAY}={day}/"))


def table_rows(lake: Lake, table: str) -> int:
    """How many rows the newest version of a table has, from the statistics of its files."""
    found: Any = pa.table(open_table(lake, table).get_add_actions(flatten=True))
    return pc.sum(found["num_records"]).as_py() or 0


def data_files(lake: Lake, table: str) -> list[str]:
    """The paths of the files that the newest version of a table of a local lake has."""
    return [f"{lake.table(table)}/{path}" for path in _file_bytes(lake, table)]


def _file_bytes(lake: Lake, table: str) -> dict[str, int]:
    files: Any = pa.table(open_table(lake, table).get_add_actions(flatten=True))
    paths, sizes = (pc.cast(files[name], kind).to_pylist() for name, kind in _FILE_COLUMNS.items())
    return dict(zip(paths, sizes, strict=True))


_FILE_COLUMNS: Final = {"path": pa.string(), "size_bytes": pa.int64()}


# -- who may write ----------------------------------------------------------------------------------------------------


def newest_epoch(lake: Lake, table: str) -> int:
    """The highest epoch in the transactions of a table."""
    opened = open_table(lake, table)
    versions = map(opened.transaction_version, _identifiers(lake, table))
    return max((epoch_and_offset(version)[0] for version in versions), default=0)


def claim_table(lake: Lake, table: str, jobs: Collection[str] = ()) -> None:
    """Put this writer's epoch into all transaction identifiers of a table, and into those of some jobs.

    What they have applied stays. After that no writer of an earlier epoch can commit: Delta leaves its commit out, or
    refuses it because an identifier that it has read has changed. LeaseLost if a newer writer has the table.
    """
    epoch = lake.epoch or 0
    for _ in range(CLAIM_ATTEMPTS):
        opened = open_table(lake, table)
        changes = {}
        for identifier in sorted({*jobs, *_identifiers(lake, table)}):
            found, through = epoch_and_offset(opened.transaction_version(identifier))
            _check_epoch(lake, found)
            if found < epoch:
                changes[identifier] = transaction_version(epoch, through)
        if not changes or commit_transactions(opened, changes):
            return
        # The other writer has committed a batch: what is applied now?
    raise LakeError(f"the table {table} in {lake.place} cannot be claimed: another writer commits to it all the time")


def take_epoch(lake: Lake, table: str, identifier: str, before: int, epoch: int) -> bool:
    """Replace an epoch in a table, unless another writer does so first: then the result is False."""
    opened = open_table(lake, table)
    if epoch_and_offset(opened.transaction_version(identifier))[0] != before:
        return False
    return commit_transactions(opened, {identifier: transaction_version(epoch, NOTHING_APPLIED)})


def commit_transactions(opened: "DeltaTable", versions: Mapping[str, int]) -> bool:
    """Commit versions of transaction identifiers; False if the table is not any more at the version that was opened."""
    from deltalake.exceptions import CommitFailedError

    try:
        opened.create_write_transaction([], "append", opened.schema(), commit_properties=_transactions(versions, 0))
    except CommitFailedError:
        return False
    return True


def _transactions(versions: Mapping[str, int], retries: int | None = None) -> "CommitProperties":
    from deltalake import CommitProperties, Transaction

    found = [Transaction(identifier, version) for identifier, version in versions.items()]
    return CommitProperties(app_transactions=found, max_commit_retries=retries)


def _identifiers(lake: Lake, table: str) -> list[str]:
    """The transaction identifiers that a table of a lake may have."""
    if table == GAPS.name:
        names = sorted({*TABLES, *lake.table_names()})
        return [identifier for name in names for identifier in gap_identifiers(name)]
    return [RETAINED.name if table == RETAINED_CLOSED.name else table]


def gap_identifiers(job: str) -> tuple[str, str]:
    """The identifiers under which the gaps of a job, and those that the lake's retention makes, are recorded."""
    return f"{GAPS.name}-{job}", f"{GAPS.name}-removed-{job}"


def lost_to(lake: Lake, epoch: int) -> LeaseLost:
    """The error of a writer that was deposed."""
    return LeaseLost(
        f"another pipeline has taken over {lake.place} (epoch {epoch}, this one had {lake.epoch}): stopping; no row "
        "was lost or duplicated"
    )


def _check_epoch(lake: Lake, found: int) -> None:
    if lake.epoch is not None and found > lake.epoch:
        raise lost_to(lake, found)
