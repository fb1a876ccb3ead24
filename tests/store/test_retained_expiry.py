"""When retained messages expire."""

import pytest

from embermq.store.budgets import RetainedBudget
from embermq.store.retained_expiry import RetainedExpiry


@pytest.mark.parametrize(("topic_name", "expiry_s"), [("a/b", 10), ("a", 20), ("$x", 20), ("c", 20)])
def test_the_first_budget_with_an_expiry_decides(topic_name: str, expiry_s: int) -> None:
    expiry = RetainedExpiry([RetainedBudget("a/+", expiry_s=10), RetainedBudget("a/b"), RetainedBudget("#", 0, 0, 20)])
    assert expiry.budget_s(topic_name) == expiry_s


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
    expiry = RetainedExpiry([RetainedBudget("a", expiry_s=10)])
    assert expiry.expires_us(topic_name, properties, 7_000_000) == expires_us
    if topic_name == "b":
        assert RetainedExpiry().expires_us(topic_name, properties, 7_000_000) == expires_us
