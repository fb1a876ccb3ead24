"""The ledger: budgets of retained messages, with what is appended but not yet seen in the state.

Owns: the totals as of the newest record, and the sizes of topics whose change is on its way.
Never: a decision about a publish; it answers whether the budgets allow it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from embermq.store.budgets import NOT_RETAINED, RetainedAccount


@final
class Ledger:
    """Exact within a group: two publishes in one turn cannot both take the last place."""

    __slots__ = ("_account", "_changed", "_pending", "_stored_size")

    def __init__(self, account: RetainedAccount, stored_size: Callable[[str], int]) -> None:
        self._account: Final = account
        self._stored_size: Final = stored_size  # what the state says of a topic
        self._pending: Final[dict[str, tuple[int, int]]] = {}  # topic -> size, offset of its newest change
        self._changed: Final[deque[tuple[int, str]]] = deque()  # offset, topic

    def admits(self, topic_name: str, payload_bytes: int) -> str:
        """Why a retained message of this size is refused; empty if it is welcome."""
        if not len(self._account) or not payload_bytes:
            return ""
        new_bytes = len(topic_name.encode()) + payload_bytes
        return self._account.admits(topic_name, self._size(topic_name), new_bytes)

    def change(self, topic_name: str, payload_bytes: int, offset: int) -> None:
        """A retained message was appended at an offset; 0 bytes: it was cleared."""
        if not len(self._account):
            return
        new_bytes = len(topic_name.encode()) + payload_bytes if payload_bytes else NOT_RETAINED
        self._account.change(topic_name, self._size(topic_name), new_bytes)
        self._pending[topic_name] = new_bytes, offset
        self._changed.append((offset, topic_name))

    def is_changing(self, topic_name: str) -> bool:
        """Whether a change of this topic is appended and not yet in the state."""
        return topic_name in self._pending

    def settle(self, next_offset: int) -> None:
        """Everything before an offset is in the state."""
        while self._changed and self._changed[0][0] < next_offset:
            offset, topic_name = self._changed.popleft()
            if self._pending[topic_name][1] == offset:
                del self._pending[topic_name]

    def _size(self, topic_name: str) -> int:
        pending = self._pending.get(topic_name)
        return self._stored_size(topic_name) if pending is None else pending[0]
