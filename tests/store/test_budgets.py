"""Budgets: what they allow, with what is appended and not yet in the state."""

from embermq.store.budgets import NOT_RETAINED, BudgetLedger, RetainedAccount, RetainedBudget


def ledger(*budgets: RetainedBudget, stored: dict[str, int] | None = None) -> BudgetLedger:
    sizes = stored or {}
    account = RetainedAccount(budgets)
    for topic_name, size_bytes in sizes.items():
        account.change(topic_name, NOT_RETAINED, size_bytes)
    return BudgetLedger(account, lambda topic_name: sizes.get(topic_name, NOT_RETAINED))


def test_the_last_place_is_given_once_within_a_group() -> None:
    one = ledger(RetainedBudget("a/#", count_max=1))
    assert one.admits("a/1", 5) == ""
    one.change("a/1", 5, offset=1)
    assert one.admits("a/2", 5) == "a/# holds 1 retained messages of at most 1"
    assert one.admits("a/1", 9) == ""
    assert one.admits("b", 5) == ""


def test_a_clear_makes_room_before_it_is_durable() -> None:
    one = ledger(RetainedBudget("#", count_max=1), stored={"a": 3})
    assert one.admits("b", 1) != ""
    one.change("a", 0, offset=1)
    assert one.admits("b", 1) == ""


def test_bytes_are_those_of_topic_and_payload_and_a_full_budget_can_shrink() -> None:
    one = ledger(RetainedBudget("#", bytes_max=10), stored={"abc": 10})
    assert one.admits("d", 1) == "# holds 10 bytes of retained messages of at most 10"
    assert one.admits("abc", 7) == ""
    assert one.admits("abc", 8) != ""
    one.change("abc", 1, offset=1)
    assert one.admits("d", 5) == ""


def test_a_change_is_pending_until_the_state_has_it_and_its_successors() -> None:
    one = ledger(RetainedBudget("#", bytes_max=4))  # of a state that never has what is applied
    one.change("a", 1, offset=4)
    one.change("a", 2, offset=6)
    one.applied(5)
    assert one.admits("a", 3) == ""
    one.applied(7)
    assert one.admits("a", 3) != ""
