"""Budgets: what they allow, with what is appended and not yet in the state."""

import pytest

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


@pytest.mark.parametrize(("topic_name", "expiry_s"), [("a/b", 10), ("a", 20), ("$x", 20), ("c", 20)])
def test_the_first_budget_with_an_expiry_decides(topic_name: str, expiry_s: int) -> None:
    account = RetainedAccount(
        [RetainedBudget("a/+", expiry_s=10), RetainedBudget("a/b"), RetainedBudget("#", 0, 0, 20)]
    )
    assert account.expiry_s(topic_name) == expiry_s


@pytest.mark.parametrize(
    ("topic_name", "properties", "expires_us"),
    [
        ("a", b"", 17_000_000),
        ("a", b"\x02\x00\x00\x00\x03", 10_000_000),
        ("a", b"\x02\x00\x00\x00\x63", 17_000_000),
        ("b", b"\x02\x00\x00\x00\x63", 106_000_000),
        ("b", b"\x01\x01", 0),
        ("b", b"", 0),
    ],
)
def test_a_message_expires_by_its_interval_or_its_budget(topic_name: str, properties: bytes, expires_us: int) -> None:
    account = RetainedAccount([RetainedBudget("a", expiry_s=10)])
    assert account.expires_us(topic_name, properties, 7_000_000) == expires_us
    if topic_name == "b":
        assert RetainedAccount().expires_us(topic_name, properties, 7_000_000) == expires_us
