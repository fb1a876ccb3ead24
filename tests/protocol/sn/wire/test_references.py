"""How packets name their topics."""

import pytest

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.wire.fields import TOPIC_ALIAS, Values
from embermq.protocol.sn.wire.references import (
    TopicReference,
    fill_reference,
    full_name,
    predefined_alias,
    read_filter,
    read_name,
    session_alias,
    short_name,
)

REFERENCES = pytest.mark.parametrize(
    "reference", [session_alias(5), predefined_alias(5), short_name("ab"), full_name("a/b")], ids=repr
)


def filled(reference: TopicReference, in_publish: bool) -> Values:
    values = Values()
    fill_reference(values, reference, in_publish)
    return values


@REFERENCES
def test_a_publish_and_a_subscription_name_a_topic_in_each_way(reference: TopicReference) -> None:
    assert read_name(filled(reference, True)) == reference
    assert read_filter(filled(reference, False)) == reference


def test_two_bytes_of_a_publish_are_the_short_name_or_the_length_of_the_full_one() -> None:
    assert filled(short_name("ab"), True).numbers[TOPIC_ALIAS] == 0x6162
    assert filled(full_name("a/b"), True).numbers[TOPIC_ALIAS] == 3


@pytest.mark.parametrize("name", ["", "a", "abc", "\xe4b"])
def test_a_short_name_is_two_bytes(name: str) -> None:
    with pytest.raises(ValueError, match="two bytes"):
        filled(short_name(name), True)


@pytest.mark.parametrize("reference", [full_name("a/+"), full_name("#"), short_name("a+"), full_name("")], ids=repr)
def test_a_publish_has_no_wildcards_and_a_subscription_is_checked_later(reference: TopicReference) -> None:
    with pytest.raises(MalformedPacket):
        read_name(filled(reference, True))
    assert read_filter(filled(reference, False)) == reference
