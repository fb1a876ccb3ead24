"""The log that several servers share, as the store of one of them sees it (docs/nodes.md).

Owns: nothing; `cluster.node` is what there is of it.
On a standby the store applies what it is given with `DiskStore.follow`. On the active server the committer has each
group ordered before it writes it, and writes it only once it counts for all servers.
"""

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from embermq.store.interface import NodeStatus
from embermq.store.rows import Group

PLACE: Final = "cluster.json"
"""In a data directory: where its node is in the shared log. Whoever appends to the log by itself deletes it before."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedLog(ABC):
    """What orders groups. Its methods may be called from several threads."""

    @abstractmethod
    def share(self, group: Group, floor: int) -> None:
        """Return once a group counts for all servers; it refers to no record before the offset `floor`.

        `Fenced`: never, and nothing may be acknowledged any more. Another `StoreError`: not now; to be called again
        with the same group, which counts once.
        """

    @abstractmethod
    def floor(self) -> int:
        """No group that will come refers to a record before this offset: a standby may trim up to it."""

    @abstractmethod
    def active_at(self) -> str:
        """Where clients reach the active server; empty if that is not known."""

    @abstractmethod
    def nodes(self) -> list[NodeStatus]:
        """The nodes that there were, as they were last heard of."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Numbers for the operator, by name."""

    @abstractmethod
    def stop_following(self) -> None:
        """On a standby: give the store no more groups."""

    @abstractmethod
    def close(self) -> None:
        """Stop, and tell the other servers."""
