"""When a retained message expires: by its own Message Expiry Interval, or by the budget of its topic.

Owns: the rule, for every engine. The instant is kept with the message; engines leave out what has expired, and
`Core.tick` has it removed.
Never: a clock.
"""

from collections.abc import Sequence
from typing import Final, final

from embermq.protocol.message_expiry import message_expires_us
from embermq.store.budgets import RetainedBudget


@final
class RetainedExpiry:
    """The rule, with the budgets that let messages expire."""

    def __init__(self, budgets: Sequence[RetainedBudget] = ()) -> None:
        self._budgets: Final = [budget for budget in budgets if budget.expiry_s > 0]
        self.has_budgets: Final = len(self._budgets) > 0  # a message without properties may expire too

    def budget_s(self, topic_name: str) -> int:
        """After how long a retained message of this topic expires, by the first budget that says so; 0: never."""
        for budget in self._budgets:
            if budget.covers(topic_name):
                return budget.expiry_s
        return 0

    def expires_us(self, topic_name: str, properties: bytes, timestamp_us: int) -> int:
        """When a message that is retained at an instant expires: the earlier of both; 0: never."""
        own_us = message_expires_us(properties, timestamp_us)
        budget_s = self.budget_s(topic_name) if self.has_budgets else 0
        if not budget_s:
            return own_us
        budget_us = timestamp_us + budget_s * 1_000_000
        return min(own_us, budget_us) if own_us else budget_us
