"""Budgets of retained messages: how many and how large, in total or below a topic.

Owns: the limits, and the running totals of each. When a message expires by its budget is in `retained_expiry`.
Never: a clock, a file. Engines count every change here before it becomes durable, so that a limit holds within a group.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from embermq.protocol.topics import matches

NO_LIMIT: Final = 0
NOT_RETAINED: Final = -1  # the size of a topic without a retained message


@dataclass(frozen=True, slots=True)
class RetainedBudget:
    """What may be retained on the topics that a filter matches. 0: no limit, no expiry."""

    topic_filter: str
    count_max: int = NO_LIMIT
    bytes_max: int = NO_LIMIT
    expiry_s: int = NO_LIMIT

    def covers(self, topic_name: str) -> bool:
        """Whether a topic counts here. `#` stands for all topics, `$` ones too."""
        return self.topic_filter == "#" or matches(self.topic_filter, topic_name)


@final
class RetainedAccount:
    """The totals of each budget, as of the newest record that was appended."""

    def __init__(self, budgets: Sequence[RetainedBudget] = ()) -> None:
        self._budgets: Final = tuple(budgets)
        self._counts: Final = [0] * len(self._budgets)
        self._bytes: Final = [0] * len(self._budgets)

    def __len__(self) -> int:
        return len(self._budgets)

    def copy(self) -> "RetainedAccount":
        """The same totals, to be changed on their own."""
        if not self._budgets:
            return self
        account = RetainedAccount(self._budgets)
        account._counts[:] = self._counts
        account._bytes[:] = self._bytes
        return account

    def load(self, topic_filter: str, count: int, size_bytes: int) -> None:
        """Start from known totals."""
        for at, budget in enumerate(self._budgets):
            if budget.topic_filter == topic_filter:
                self._counts[at] = count
                self._bytes[at] = size_bytes

    def admits(self, topic_name: str, old_bytes: int, new_bytes: int) -> str:
        """Why a topic may not be given a retained message of this size; empty if it may."""
        grows = old_bytes == NOT_RETAINED
        growth_bytes = new_bytes - (0 if grows else old_bytes)
        for at, budget in enumerate(self._budgets):
            if not budget.covers(topic_name):
                continue
            if grows and budget.count_max and self._counts[at] >= budget.count_max:
                return f"{budget.topic_filter} holds {self._counts[at]} retained messages of at most {budget.count_max}"
            # A message that does not make the sum larger is always allowed: otherwise a full budget could not shrink.
            if budget.bytes_max and growth_bytes > 0 and self._bytes[at] + growth_bytes > budget.bytes_max:
                return (
                    f"{budget.topic_filter} holds {self._bytes[at]} bytes of retained messages"
                    f" of at most {budget.bytes_max}"
                )
        return ""

    def change(self, topic_name: str, old_bytes: int, new_bytes: int) -> None:
        """A topic's retained message was replaced, made or (`NOT_RETAINED`) taken away."""
        if old_bytes == new_bytes:
            return
        count = (new_bytes != NOT_RETAINED) - (old_bytes != NOT_RETAINED)
        size_bytes = max(new_bytes, 0) - max(old_bytes, 0)
        for at, budget in enumerate(self._budgets):
            if budget.covers(topic_name):
                self._counts[at] += count
                self._bytes[at] += size_bytes

    def totals(self) -> list[tuple[str, int, int]]:
        """Filter, count and bytes of each budget."""
        return [
            (budget.topic_filter, count, size_bytes)
            for budget, count, size_bytes in zip(self._budgets, self._counts, self._bytes, strict=True)
        ]


@final
class BudgetLedger:
    """The totals as of the newest record, and the sizes of the topics whose change is pending.

    Exact within a group: two publishes in one turn cannot both take the last place.
    """

    def __init__(self, account: RetainedAccount, stored_size: Callable[[str], int]) -> None:
        self._account = account
        self._stored_size: Final = stored_size  # what the state says of a topic
        self._pending: Final[dict[str, tuple[int, int]]] = {}  # topic -> size, offset of its newest change
        self._changed: Final[deque[tuple[int, str]]] = deque()  # offset, topic

    def admits(self, topic_name: str, payload_bytes: int) -> str:
        """Why a retained message of this size is refused; empty if it is allowed."""
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

    def begin_at(self, account: RetainedAccount) -> None:
        """Nothing was changed here yet, and the state has these totals now."""
        self._account = account

    def applied(self, next_offset: int) -> None:
        """Everything before an offset is in the state."""
        while self._changed and self._changed[0][0] < next_offset:
            offset, topic_name = self._changed.popleft()
            if self._pending[topic_name][1] == offset:
                del self._pending[topic_name]

    def _size(self, topic_name: str) -> int:
        pending = self._pending.get(topic_name)
        return self._stored_size(topic_name) if pending is None else pending[0]
