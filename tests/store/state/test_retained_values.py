"""A retained message as bytes: its layout."""

from embermq.store.log.records import Group
from embermq.store.state.retained_values import HEAD, packed_record, unpack_retained, value_offset, value_size


def test_a_message_is_packed_as_its_layout_says() -> None:
    group = Group(40)
    group.append(1 << 50, 1, 0b110, b"a", b"payload", b"c" * 40_000, b"pp")
    head = HEAD.pack(40, 1 << 50, 9, 2, 40_000, 2)
    assert packed_record(group, 0, expires_us=9) == head + b"c" * 40_000 + b"pp" + b"payload"


def test_a_packed_message_is_read_again() -> None:
    group = Group(40)
    group.append(1 << 50, 1, 0b110, b"a/b", b"payload", b"client", b"pp")
    value = packed_record(group, 0, expires_us=9)
    found = unpack_retained(b"a\x00b", value)
    assert (found.topic_name, found.payload, found.qos, found.properties) == ("a/b", b"payload", 2, b"pp")
    assert (found.offset, found.timestamp_us, found.client_id, found.expires_us) == (40, 1 << 50, "client", 9)
    assert value_offset(value) == 40
    assert value_size(b"a\x00b", value) == 3 + 7
