"""What only the archive of the log has, for requests.

Owns: on which threads of the store such questions wait, so that no other request waits for the archive.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, final

from embermq.http.store_reads import on_lane
from embermq.store.history.lanes import IsWanted
from embermq.store.interface import Store

if TYPE_CHECKING:
    from embermq.history.joined import JoinedLog
    from embermq.history.rebuilt import ArchivedPast

T = TypeVar("T")


@final
class ArchivedHistory:
    """The log with its archive, and the retained set of instants that only the archive has."""

    __slots__ = ("_store", "log", "past")

    def __init__(self, store: Store, log: "JoinedLog", past: "ArchivedPast") -> None:
        self._store: Final = store
        self.log: Final = log
        """Its calls are for `on_thread`."""
        self.past: Final = past
        """Its calls that find messages are for `of_past`."""

    async def on_thread(self, call: Callable[[], T]) -> T:
        """Do something that waits for the archive."""
        reads = self._store.history.reads()
        assert reads is not None
        return await on_lane(reads.lanes.archived, lambda _: call())

    async def of_past(self, find: Callable[["ArchivedPast", IsWanted], T], *instants_us: int) -> T:
        """Find out something of the retained set at some instants; it stops when the request is given up."""
        reads = self._store.history.reads()
        assert reads is not None
        is_made = partial(self._is_made, instants_us)
        return await on_lane(reads.lanes.rebuilt, lambda is_wanted: find(self.past, is_wanted), is_made)

    def _is_made(self, instants_us: tuple[int, ...]) -> bool:
        begins_us = self._store.history.begins_us()
        return all(self.past.is_made(instant_us) for instant_us in instants_us if 0 < instant_us < begins_us)


def archived_history(store: Store) -> ArchivedHistory | None:
    """None without an archive."""
    reads = store.history.reads()
    if reads is None or reads.trimmed is None:
        return None
    from embermq.history.stretches import ArchivedStretches

    assert isinstance(reads.trimmed, ArchivedStretches)
    return ArchivedHistory(store, reads.trimmed.joined(), reads.trimmed.retained())
