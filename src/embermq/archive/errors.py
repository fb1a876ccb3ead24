"""What can be wrong with an archive, as one sentence for the operator."""

from embermq.store.errors import StoreError


class ArchiveError(StoreError):
    """An archive that cannot be used now: not reachable, not permitted, not whole, or that of another log."""


class NotArchived(ArchiveError):
    """An object that the archive does not have."""


class ArchiveDamaged(ArchiveError):
    """An object of the archive is not what was uploaded."""
