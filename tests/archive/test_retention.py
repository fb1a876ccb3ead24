"""The retention of an archive: what expires, and that what is left can be read."""

import pytest

from embermq.archive.manifest import ArchivedCheckpoint, ArchivedFile, ArchivedSegment
from embermq.archive.retention import ArchiveRetention, expired

SECOND_US = 1_000_000
NO_FILE = ArchivedFile(100, "")
SEGMENTS = [
    ArchivedSegment(first, first + 10, first * SECOND_US, (first + 9) * SECOND_US, 1, 1, NO_FILE, NO_FILE, None)
    for first in range(1, 101, 10)
]
CHECKPOINTS = [ArchivedCheckpoint(offset, 0, 1, NO_FILE) for offset in (21, 51, 91)]


@pytest.mark.parametrize(
    ("retention", "first_kept", "checkpoints_kept"),
    [
        (ArchiveRetention(), 1, [21, 51, 91]),
        (ArchiveRetention(size_bytes=1_000), 1, [21, 51, 91]),
        (ArchiveRetention(size_bytes=900), 1, [21, 51, 91]),  # there is no checkpoint to begin at
        (ArchiveRetention(size_bytes=800), 21, [21, 51, 91]),
        (ArchiveRetention(size_bytes=500), 51, [51, 91]),
        (ArchiveRetention(size_bytes=1), 91, [91]),  # what follows the newest checkpoint stays
        (ArchiveRetention(age_s=60), 21, [21, 51, 91]),
        (ArchiveRetention(age_s=49), 51, [51, 91]),
        (ArchiveRetention(size_bytes=800, age_s=49), 51, [51, 91]),
    ],
)
def test_what_expires_ends_at_a_checkpoint(
    retention: ArchiveRetention, first_kept: int, checkpoints_kept: list[int]
) -> None:
    segments, checkpoints = expired(retention, SEGMENTS, CHECKPOINTS)
    assert next(one for one in SEGMENTS if one not in segments).first_offset == first_kept
    assert [one.offset for one in CHECKPOINTS if one not in checkpoints] == checkpoints_kept


def test_an_empty_archive_has_nothing_to_expire() -> None:
    assert expired(ArchiveRetention(1, 1), [], []) == ([], [])
