"""Fields and their values."""

import pytest

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.wire import fields
from embermq.protocol.sn.wire import packets as sn
from embermq.protocol.sn.wire.decode import decode
from embermq.protocol.sn.wire.encode import encode
from embermq.protocol.sn.wire.profiles import A


def test_strings_are_strict_utf8_and_keep_a_bom() -> None:
    bom = "\ufeffdev"
    assert decode(encode(sn.Pingreq(1, bom), A), A) == sn.Pingreq(1, bom)
    with pytest.raises(MalformedPacket):
        fields.text_of(b"a\x00b")


def test_an_optional_number_holds_nothing_until_it_is_set_even_to_0() -> None:
    values = fields.Values()
    assert not values.holds(fields.SESSION_EXPIRY)
    values.numbers[fields.SESSION_EXPIRY] = 0
    assert values.holds(fields.SESSION_EXPIRY)


def test_values_of_two_packets_share_nothing() -> None:
    first, second = fields.Values(), fields.Values()
    first.numbers[fields.PACKET_ID] = 7
    first.set_blob(fields.NAME, b"a/b")
    assert (second.numbers[fields.PACKET_ID], second.blob(fields.NAME)) == (0, b"")
    assert not second.holds(fields.NAME)


def test_no_two_fields_have_the_same_number() -> None:
    names = [name for name in vars(fields) if name.isupper()]
    numbers = [getattr(fields, name) for name in names[: names.index("NUMBERS")]]
    assert numbers == list(range(fields.NUMBERS))
    blobs = [getattr(fields, name) for name in names[names.index("CLIENT_ID") : names.index("BLOBS")]]
    assert blobs == list(range(fields.BLOB, fields.BLOB + fields.BLOBS))
