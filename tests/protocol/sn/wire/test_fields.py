"""The numbers of fields, and strings."""

import pytest

from embermq.protocol.errors import MalformedPacket
from embermq.protocol.sn.wire import fields
from embermq.protocol.sn.wire.codec import decode, encode
from embermq.protocol.sn.wire.profiles import A
from support import sn_packets as sn


def test_strings_are_strict_utf8_and_keep_a_bom() -> None:
    bom = "\ufeffdev"
    assert decode(encode(sn.pingreq(1, bom), A), A) == sn.pingreq(1, bom)
    with pytest.raises(MalformedPacket):
        fields.text_of(b"a\x00b")


def test_no_two_fields_have_the_same_number() -> None:
    names = [name for name in vars(fields) if name.isupper()]
    numbers = [getattr(fields, name) for name in names[: names.index("NUMBERS")]]
    assert numbers == list(range(fields.NUMBERS))
    texts = [getattr(fields, name) for name in names[names.index("CLIENT_ID") : names.index("TEXTS")]]
    assert texts == list(range(fields.TEXT, fields.TEXT + fields.TEXTS))
    blobs = [getattr(fields, name) for name in names[names.index("PAYLOAD") : names.index("BLOBS")]]
    assert blobs == list(range(fields.BLOB, fields.BLOB + fields.BLOBS))
