"""The kinds of packets: numbers for our own tables."""

import pytest

from embermq.protocol.sn.wire import kinds
from embermq.protocol.sn.wire.fields import Values
from support.sn_vectors import VECTORS


def test_every_kind_has_a_number_of_its_own_below_their_count() -> None:
    numbers = [value for name, value in vars(kinds).items() if name.isupper() and name != "KINDS"]
    assert sorted(numbers) == list(range(kinds.KINDS))


def test_the_vectors_have_packets_of_every_kind() -> None:
    assert {vector.packet.kind() for vector in VECTORS} == set(range(kinds.KINDS))


def test_the_base_class_has_no_kind_and_no_fields() -> None:
    with pytest.raises(NotImplementedError):
        kinds.SnPacket().kind()
    values = Values()
    kinds.SnPacket().fill(values)
    assert values.numbers == Values().numbers
